"""What the unit of the log-probs makes of a clip."""

from __future__ import annotations

UNITS = {
    "mean": "nats per transition, mean over {size} elements",
    "sum": "nats per transition",
    "sqrt": "nats per transition, sum over {size} elements divided by its root",
    "per_element": "nats per element of a transition",
}
"""What a log-prob is per, by how elements are reduced."""


def clip_remark(reduce: str, elements: int) -> str:
    """Explains in a sentence what the unit of the log-probs makes of a clip.

    A shift of `delta` standard deviations in every element spreads the log-ratio by `delta / sqrt(D)`, `delta sqrt(D)`,
    `delta`, `delta` for mean, sum, sqrt and per_element. Flow-GRPO's clip of 1e-4 on means over 16,384 elements holds
    shifts of .0128.

    Example:
        >>> clip_remark("mean", 64)
        'log-probs: a mean over 64 elements; a clip of c holds shifts of 8 c standard deviations (Flow-GRPO holds shifts of 0.0128: here c = 0.0016)'
    """  # noqa: E501
    reduction = {
        "mean": "a mean over",
        "sum": "a sum over",
        "sqrt": "a sum over the root of",
        "per_element": "one for each of",
    }[reduce]
    scale = {"mean": elements**-0.5, "sum": elements**0.5, "sqrt": 1.0, "per_element": 1.0}[reduce]
    shift = "c" if scale == 1 else f"{1 / scale:.3g} c"
    clip_text = (
        f"a clip of c holds shifts of {shift} standard deviations (Flow-GRPO holds shifts of 0.0128: here c ="
        f" {0.0128 * scale:.2g})"
    )
    return f"log-probs: {reduction} {elements} elements; {clip_text}"
