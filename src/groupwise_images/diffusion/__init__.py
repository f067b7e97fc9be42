"""Diffusion and flow models: a decision is one denoising transition."""
