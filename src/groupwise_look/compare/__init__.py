"""Grids of runs, their comparison, and its statistics."""
