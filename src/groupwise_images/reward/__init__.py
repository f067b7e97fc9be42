"""Rewards of images."""
