"""The bounds of passes of models that make images. Imports no torch."""

from __future__ import annotations

MOST_ROWS = 64
"""Rows of a pass without a gradient, however many fit: larger passes are hardly faster, and hold more."""
CPU_BYTES = 2**27
"""What a pass may hold on a CPU, whose memory is shared with everything else."""
CUDA_SHARE = 0.5
"""The share of a GPU's free memory that a pass may hold; rewards, and an optimiser's moments, come later."""
