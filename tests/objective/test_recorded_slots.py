"""The slots of presets and overlays as `presets/slots.json` records them, from which `groupwise methods` prints.

`python tests/objective/test_recorded_slots.py` records them anew, after a preset or a default has changed.
"""

from __future__ import annotations

import json
from pathlib import Path

import groupwise
from groupwise.objective import Objective
from groupwise.objective.preset import method_names, overlay_names

FILE = Path(groupwise.__file__).parent / "presets" / "slots.json"


def _text() -> str:
    lines = [
        f"{json.dumps(name)}: {json.dumps(Objective.preset(name).model_dump(mode='json', exclude={'name'}))}"
        for name in (*method_names(), *(f"grpo+{overlay}" for overlay in overlay_names()))
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def test_the_recorded_slots_are_those_of_the_presets() -> None:
    assert FILE.read_text(encoding="utf-8") == _text(), f"run python {Path(__file__).name} in tests/objective"


if __name__ == "__main__":
    FILE.write_text(_text(), encoding="utf-8")
