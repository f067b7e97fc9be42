"""Causal language models: prompts, groups of completions, rewards that are programs, and conversations. Importing this
room imports no torch.
"""
