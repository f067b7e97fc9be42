"""A selector from its run to its use: exported, then asked as the guide says, with the run's own task model writing the
answers.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import groupwise
from groupwise.cli.app import app
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise_selection.task_model.ticket_lm import trained_folder

CHANGES = [
    "domain.source={ kind = 'tickets', num_train = 512, num_validation = 32, num_held_out = 256 }",
    "domain.task_model={ kind = 'ticket_lm', num_steps = 400 }",
    "domain.evaluation={ num_oracle = 2, num_fixed = 2, num_resamples = 100 }",
    "train.num_steps=30",
    "optimiser.learning_rate=0.002",
    "track.console=none",
]


@pytest.mark.nightly
def test_the_folder_answers_as_often_right_as_its_card_and_its_table_say(tmp_path: Path) -> None:
    experiment = load_experiment("selection_text", CHANGES)
    done = run(experiment, tmp_path / "run").folder.path
    with pytest.raises(SystemExit) as ended:
        app(["export", str(done), "--out", str(tmp_path / "ticket-selector")])
    assert ended.value.code in (0, None)
    place = trained_folder(experiment.domain.task_model)
    model, words = AutoModelForCausalLM.from_pretrained(place), AutoTokenizer.from_pretrained(place)
    selector = groupwise.Selector.load(tmp_path / "ticket-selector")
    held_out = experiment.domain.source.read().held_out

    @torch.no_grad()
    def right(k: int) -> float:
        found = 0
        for query in held_out:
            ids = words(selector.prompt(query.question, k=k), return_tensors="pt").input_ids
            written = model.generate(ids, max_new_tokens=1, do_sample=False, pad_token_id=0)
            found += words.decode(written[0, ids.shape[1] :]).strip() == query.answer
        return found / len(held_out)

    used = [right(k) for k in (1, 2, 3, 4)]
    card = (tmp_path / "ticket-selector" / "README.md").read_text()
    told = re.search(r"^\| as exported \|(.+)\|$", card, re.MULTILINE)
    assert told is not None
    # What is written is the most probable of all words, what the card says the most probable of the desks: the same
    # word wherever the model knows its task.
    assert [float(cell) for cell in told[1].split("|")][:4] == pytest.approx(used, abs=0.5e-3 + 2 / len(held_out))
    table = {row[0]: row[1:] for row in json.loads((done / "tables" / "baselines.json").read_text())["rows"]}
    for score, exported, pooled, nearest in zip(
        used, table["ours, as exported"], table["ours"], table["kNN, as exported"], strict=True
    ):
        assert score == pytest.approx(exported["mean"], abs=2 / len(held_out))
        # Two samples of the same number of queries, out of pools that differ: three standard errors of their difference
        # at most, were they independent.
        assert abs(score - pooled["mean"]) < 3 * math.sqrt(2 * 0.25 / len(held_out))
        assert score > nearest["mean"]
