"""Members on their way to a policy's scoring, and its fields on their way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from groupwise.domain.protocol import Samples
from groupwise.records import Scored


def by_temperature(
    samples: Samples, compute: Callable[[Tensor | None, Samples, float], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Computes fields `[B, T]` of members that share a temperature together; where all share one, nothing is copied.

    Args:
        samples: the members.
        compute: rows of some members (None for all), those members and their temperature -> their fields.
    """
    temperature = samples.payload["temperature"]
    values = temperature.unique().tolist()
    if len(values) <= 1:
        return compute(None, samples, values[0] if values else 1.0)
    fields: dict[str, Tensor] = {}
    for value in values:
        members = (temperature == value).nonzero()[:, 0]
        for name, field in compute(members, samples.select(members), value).items():
            empty = field.new_zeros(samples.mask.shape)
            fields[name] = fields.get(name, empty).index_copy(0, members, field)
    return fields


def scoring_inputs(samples: Samples) -> dict[str, Any]:
    """Returns the arguments of scoring; positions that no loss reads are skipped by its mask."""
    return {
        "prompts": samples.payload["prompt_ids"],
        "tokens": samples.payload["tokens"],
        "mask": samples.mask | samples.payload["target"],
    }


def as_scored(fields: Mapping[str, Tensor], samples: Samples) -> Scored:
    """Makes the record of scored fields, with the supervised term of demonstrations."""
    auxiliary = {}
    if "supervised" in samples.auxiliary_count:
        auxiliary["supervised"] = -(fields["log_prob"] * samples.payload["target"]).sum(1)
    return Scored(**fields, auxiliary=auxiliary)
