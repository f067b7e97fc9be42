"""The schema of experiment files, as an editor reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from groupwise.experiment import load_experiment
from groupwise.experiment.runner import job_of
from groupwise.experiment.schema import Experiment, file_schema


def test_an_experiment_file_may_write_slots_at_the_top_and_leave_everything_else_out():
    schema = file_schema()
    properties = schema["properties"]
    assert {"extends", "method", "trust", "credit", "domain", "stages", "controls"} <= set(properties)
    assert "required" not in schema
    assert schema["additionalProperties"] is False
    assert properties["method"]["description"].startswith("a preset")
    assert json.loads(json.dumps(schema)) == schema
    kinds = {
        reference["$ref"].rpartition("/")[2]
        for reference in schema["$defs"]["Objective"]["properties"]["trust"]["anyOf"]
    }
    assert {"Clip", "Gaussian", "Cispo"} <= kinds


def test_a_shipped_comparison_names_methods_that_exist() -> None:
    """Source 000's grid is read as a user's would be: every variant is a valid experiment, and no two are the same."""
    from groupwise_look.compare.grids import variants

    shipped = load_experiment("source_000").comparison
    assert shipped is not None
    experiments = [load_experiment("source_000", list(variant.overrides)) for variant in variants(shipped.vary)]
    assert [experiment.method for experiment in experiments][:4] == ["grpo", "gspo", "dapo", "cispo"]
    assert (
        len({experiment.objective.model_copy(update={"name": ""}).model_dump_json() for experiment in experiments})
        == len(experiments)
        == 13
    )
    assert all(experiment.train.updates_per_batch > 1 for experiment in experiments)


def test_a_control_with_a_method_of_its_own_is_not_changed_by_the_experiments_edits() -> None:
    """Smoothing is ineffective under rejection sampling, and says nothing about it: the edit belongs to the
    experiment's method.
    """
    edited = load_experiment("language", ["smoothing.kind=ema"])
    assert edited.spans[-1].objective.smoothing.kind == "ema"
    (control,) = edited.control("rejection_sampling")
    assert control.objective.name == "rejection_sampling"


@pytest.mark.slow
def test_every_count_of_an_experiment_has_an_upper_bound() -> None:
    """A count beyond any machine's memory or patience is a typing error."""

    def unbounded(node: Any, place: str) -> Iterator[str]:
        if isinstance(node, dict):
            if node.get("type") == "integer" and not node.keys() & {"maximum", "exclusiveMaximum", "const", "enum"}:
                yield place
            for key, inner in node.items():
                yield from unbounded(inner, f"{place}.{key}")
        elif isinstance(node, list):
            for inner in node:
                yield from unbounded(inner, place)

    assert list(unbounded(file_schema(), "")) == []


def test_a_stage_is_read_once_and_again_only_in_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    read_stages = []
    changed = Experiment._changed

    def counted(self: Experiment, source: str, *arguments: Any, **more: Any) -> Experiment:
        read_stages.extend([source] if source.startswith("stages.") else [])
        return changed(self, source, *arguments, **more)

    monkeypatch.setattr(Experiment, "_changed", counted)
    experiment = load_experiment("language")
    job_of(experiment)
    assert read_stages == ["stages.warm_up", "stages.grpo"]
    spans = experiment.spans
    spans.clear()
    assert [span.seed for span in experiment.spans] == [0, 0]
    copy = experiment.model_copy(update={"seed": 7})
    assert [span.seed for span in copy.spans] == [7, 7]
    assert len(read_stages) == 4
    assert experiment.model_copy() == experiment
