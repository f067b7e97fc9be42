"""What the objective remembers: JSON-able, and exact after a round trip."""

from __future__ import annotations

from groupwise.objective import ObjectiveState
from groupwise.objective.batch import Running


def test_round_trip_through_json_is_exact() -> None:
    state = ObjectiveState(
        step=3, beta=0.1 + 0.2, running=Running().follow(mean=1 / 3, std=2 / 3, centred_std=0.5, decay=0.99)
    )
    assert ObjectiveState.model_validate_json(state.model_dump_json()) == state
