"""Rewards of a completion's text, and the grammars by which they read it."""
