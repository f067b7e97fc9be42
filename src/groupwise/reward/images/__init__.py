"""Rewards that look at images."""
