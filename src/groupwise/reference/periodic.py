"""A reference that takes a step towards the policy now and then."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal, final

from pydantic import ConfigDict, Field, model_validator

from groupwise.config.numbers import Positive
from groupwise.processes import is_first_process
from groupwise.reference.rule import ReferenceRule

log = logging.getLogger("groupwise")


def _say(text: str) -> None:
    if is_first_process():
        log.warning(text)


def convert_source_names(values: Any) -> Any:
    """Source 002's names: `reference_model_mixup_alpha` weighs the *old* reference, so `alpha = 1 - it`;
    `reference_update_freq` is `sync_steps`.

    Args:
        values: a table of a reference, before it is validated.

    Returns:
        the same table in our names.

    Raises:
        ValueError: a setting is given under both of its names.

    Example:
        >>> convert_source_names({"kind": "periodic", "alpha": 0.6})
        {'kind': 'periodic', 'alpha': 0.6}
    """
    if not isinstance(values, Mapping) or not {"reference_model_mixup_alpha", "reference_update_freq"} & set(values):
        return values
    values = dict(values)
    if "reference_model_mixup_alpha" in values:
        if "alpha" in values:
            raise ValueError(
                "reference.alpha and reference_model_mixup_alpha are one setting in two orientations; keep alpha, the"
                " policy's share"
            )
        mixup = values.pop("reference_model_mixup_alpha")
        values["alpha"] = 1.0 - mixup
        _say(
            f"reference_model_mixup_alpha = {mixup} is the old reference's share; read as reference.alpha ="
            f" {values['alpha']:g}, the policy's share"
        )
    if "reference_update_freq" in values:
        if "sync_steps" in values:
            raise ValueError("reference.sync_steps and reference_update_freq are the same setting; keep sync_steps")
        values["sync_steps"] = values.pop("reference_update_freq")
        _say(f"reference_update_freq = {values['sync_steps']} is read as reference.sync_steps")
    return values


def show_source_names(schema: dict[str, Any]) -> None:
    """Adds source 002's names to a reference's JSON schema, so that an editor takes them.

    Args:
        schema: of the reference; is changed.

    Example:
        >>> schema = {"properties": {}}
        >>> show_source_names(schema)
        >>> sorted(schema["properties"])
        ['reference_model_mixup_alpha', 'reference_update_freq']
    """
    schema["properties"] |= {
        "reference_model_mixup_alpha": {
            "type": "number",
            "description": "Source 002's name: the old reference's share, 1 - alpha.",
        },
        "reference_update_freq": {"type": "integer", "description": "Source 002's name of sync_steps."},
    }


@final
class PeriodicReference(ReferenceRule):
    """Every `sync_steps` steps of the loop: `ref <- alpha theta + (1 - alpha) ref`.

    Args:
        sync_steps: steps between two mixings.
        alpha: the policy's share; 1 copies the policy, 0 leaves the reference frozen. TRL's orientation; source 002's
            `reference_model_mixup_alpha` is the opposite, is accepted and converted, and the conversion is said.

    Example:
        >>> PeriodicReference().alpha
        0.6
        >>> PeriodicReference.model_validate({"reference_model_mixup_alpha": 0.75}).alpha
        0.25

    Source: Gorbatovski et al. 2024, arXiv 2404.09656 (TR-DPO); orientation as in TRL's `ref_model_mixup_alpha`.
    """

    model_config = ConfigDict(json_schema_extra=show_source_names)

    kind: Literal["periodic"] = "periodic"
    sync_steps: Positive = 64
    alpha: float = Field(default=0.6, ge=0, le=1)

    _from_source = model_validator(mode="before")(convert_source_names)

    def follow(self, step: int, score: float | None, reference_score: float | None) -> float | None:
        """Returns `alpha` at every `sync_steps`-th step."""
        return None if step % self.sync_steps else self.alpha
