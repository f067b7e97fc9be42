"""From a run to a selector: a whole small run on support tickets, exported by the command, selects without torch as the trained policy does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from groupwise.cli.app import main
from groupwise.config import ConfigError
from groupwise.domain.selection.config import SelectionConfig
from groupwise.domain.selection.export import write_selector
from groupwise.domain.selection.policy.choose import draw
from groupwise.domain.selection.policy.config import Pretrained
from groupwise.domain.selection.policy.loading import open_policy
from groupwise.domain.selection.selector import Selector
from groupwise.domain.selection.table import QueryTable
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.streams import Streams

SMALL = [
    "domain.source.num_train=12",
    "domain.source.num_validation=2",
    "domain.source.num_held_out=6",
    "domain.task_model={ kind = 'ticket_lm', width = 16, num_steps = 3, batch_size = 4 }",
    "domain.evaluation={ num_oracle = 2, num_fixed = 2, num_resamples = 10 }",
    "train.num_steps=2",
    "train.prompts_per_step=4",
    "optimiser.learning_rate=0.05",
    "track.console=none",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return run(load_experiment("selection_text", SMALL), tmp_path_factory.mktemp("runs") / "tickets").folder.path


@pytest.fixture(scope="module")
def exported(finished, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "ticket-selector"
    ended = subprocess.run([sys.executable, "-m", "groupwise", "export", str(finished), "--out", str(out)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert f'Load it: groupwise.Selector.load("{out}").select(QUERY, 4)' in ended.stdout
    return out


def test_the_exported_selector_picks_as_the_trained_policy_does(finished, exported):
    config = load_experiment(finished).domain
    assert isinstance(config, SelectionConfig)
    questions = config.source.read()
    network = open_policy(Pretrained(path=str(finished / "model")), 128, False, Streams(0), torch.device("cpu"))
    assert float(network.out.weight.detach().abs().max()) > 0, "it was trained"
    table = QueryTable(questions.held_out, network.config.answer_size, torch.device("cpu"), torch.float32)
    with torch.no_grad():
        choices = draw(network, network.encode(table.pools(torch.arange(6))), 4, None, torch.ones(6, dtype=torch.float64))
    selector = Selector.load(exported)
    for query, picks in zip(questions.held_out, choices.picks.tolist(), strict=True):
        pool = [example.id for example in query.pool]
        assert [each.id for each in selector.select(query.question, 4, pool=pool)] == [pool[place] for place in picks][::-1]


def test_it_knows_what_it_was_trained_with(exported):
    told = json.loads((exported / "selector.json").read_text())
    assert told["shots"] == 4
    assert told["order"] == "first_pick_last"
    assert told["pool_size"] == 24
    assert told["embedder"] == {"kind": "hashed_words", "size": 128}
    assert told["template"]["question"] == "{question}:"
    assert len(told["task_model"]) == 32
    assert set(told["hashes"]) == {"policy", "data", "embedder", "template", "settings"}
    prompt = Selector.load(exported).prompt("north gold web kim new atlas", 2)
    assert prompt.endswith("\nnorth gold web kim new atlas:")
    assert len(prompt.splitlines()) == 3


def test_the_card_says_whose_examples_are_in_the_folder(exported):
    card = (exported / "README.md").read_text()
    assert "experiment `selection_text`, method `grpo+edited`" in card
    assert "selected/accuracy on held-out queries" in card
    assert "the solved examples it chooses from, with their answers" in card
    assert "library_name" not in card


def test_a_folder_without_a_policy_is_refused(finished, tmp_path):
    config = load_experiment(finished).domain
    with pytest.raises(ConfigError, match=r"no policy.json in it; give a run of the selection domain"):
        write_selector(config, tmp_path, tmp_path / "out")


def test_a_policy_of_other_embeddings_is_refused(finished, tmp_path):
    config = load_experiment(finished, ["domain.source.embedder.size=64"]).domain
    with pytest.raises(ConfigError, match=r"the policy reads embeddings of 128 numbers, and the source has \[\(64,\)\]"):
        write_selector(config, finished / "model", tmp_path / "out")


def test_nothing_is_overwritten(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["groupwise", "export", str(finished), "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert "exists; nothing is overwritten" in capsys.readouterr().err
