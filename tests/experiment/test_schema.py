"""The schema of experiment files, as an editor reads it."""

from __future__ import annotations

import json

from groupwise.experiment.schema import file_schema


def test_an_experiment_file_may_write_slots_at_the_top_and_leave_everything_else_out():
    schema = file_schema()
    properties = schema["properties"]
    assert {"extends", "method", "trust", "credit", "objective", "domain", "stages", "controls"} <= set(properties)
    assert "required" not in schema
    assert schema["additionalProperties"] is False
    assert properties["method"]["description"].startswith("a preset")
    assert json.loads(json.dumps(schema)) == schema
    kinds = schema["$defs"]["Objective"]["properties"]["trust"]["discriminator"]["mapping"]
    assert {"clip", "gaussian", "cispo"} <= set(kinds)
