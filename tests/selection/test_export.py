"""From a run to a selector: a whole small run on support tickets, exported by the command, selects without torch as the
trained policy does.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.once import once

from groupwise.cli.app import main
from groupwise.config import ConfigError
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.streams import Streams
from groupwise_selection.config import SelectionConfig
from groupwise_selection.embedder import HashedWords
from groupwise_selection.evaluate import pooled
from groupwise_selection.export import store, write_selector
from groupwise_selection.measurement import QueryTable
from groupwise_selection.policy.choices import draw_choices
from groupwise_selection.policy.config import Pretrained
from groupwise_selection.policy.network import open_policy
from groupwise_selection.selector import Selector
from groupwise_selection.source.files import Files
from groupwise_selection.source.tickets import DESKS, decisive
from groupwise_selection.task_model.ticket_lm import trained_folder

from .small_selector import SOURCE, small_selector

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


def command(*arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["groupwise", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code in (0, None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return once(tmp_path_factory, "tickets", lambda folder: run(load_experiment("selection_text", SMALL), folder))


@pytest.fixture(scope="module")
def exported(finished, tmp_path_factory) -> Path:
    def export(out: Path) -> None:
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            command("export", str(finished), "--out", str(out))
        assert f'Load it: groupwise.Selector.load("{out}").select(QUERY, 4)' in told.getvalue()

    return once(tmp_path_factory, "ticket-selector", export)


def test_the_exported_selector_picks_as_the_trained_policy_does(finished, exported):
    config = load_experiment(finished).domain
    assert isinstance(config, SelectionConfig)
    questions = config.source.read()
    network = open_policy(Pretrained(path=str(finished / "model")), 128, False, Streams(0), torch.device("cpu"))
    assert float(network.out.weight.detach().abs().max()) > 0, "it was trained"
    table = QueryTable(questions.held_out, network.config.answer_size, torch.device("cpu"), torch.float32)
    with torch.no_grad():
        choices = draw_choices(
            network, network.encode(table.pools(torch.arange(6))), 4, None, torch.ones(6, dtype=torch.float64)
        )
    selector = Selector.load(exported)
    for query, picks in zip(questions.held_out, choices.picks.tolist(), strict=True):
        pool = [example.id for example in query.pool]
        assert [each.id for each in selector.select(query.question, 4, pool=pool)] == [pool[place] for place in picks][
            ::-1
        ]


def test_an_export_records_the_settings_of_its_training(exported):
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


def desk(prompt: str, model, words) -> str:
    """What the task model answers: the desk to which it gives the highest probability."""
    with torch.no_grad():
        logits = model(**words(prompt, return_tensors="pt")).logits[0, -1]
    return max(DESKS, key=lambda name: float(logits[words.convert_tokens_to_ids(f" {name}")]))


def test_the_store_is_one_split_that_does_not_contradict_itself(finished, exported):
    questions = load_experiment(finished).domain.source.read()
    own = {example.id for query in questions.held_out for example in query.pool}
    examples = Selector.load(exported).examples
    assert {example.id for example in examples} == own
    desks: dict[tuple[str, str], set[str]] = {}
    for example in examples:
        desks.setdefault(decisive(example.question), set()).add(example.answer)
    assert max(map(len, desks.values())) == 1, "a product has one desk"


def test_used_as_the_guide_says_it_scores_what_its_card_and_the_table_say(finished, exported):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config = load_experiment(finished).domain
    folder = trained_folder(config.task_model)
    model, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    selector, held_out = Selector.load(exported), config.source.read().held_out
    scores = [
        sum(desk(selector.prompt(query.question, k), model, words) == query.answer for query in held_out)
        / len(held_out)
        for k in range(1, 5)
    ]
    row = "| as exported | " + " | ".join(f"{score:.3f}" for score in [*scores, sum(scores) / 4]) + " |"
    card = (exported / "README.md").read_text()
    assert row in card
    assert f"chose among the 24 nearest of the {len(selector.examples)} solved examples of held-out queries" in card
    table = {line[0]: line[1:] for line in json.loads((finished / "tables" / "baselines.json").read_text())["rows"]}
    assert [cell["mean"] for cell in table["ours, as exported"]] == pytest.approx(scores)
    assert "kNN, as exported" in table


def test_evaluate_measures_the_folder_as_it_is_used(finished, exported, tmp_path, capsys):
    def evaluated(folder: Path) -> dict:
        command("evaluate", str(folder), "--experiment", str(finished), "--json")
        return json.loads(capsys.readouterr().out)

    told = evaluated(exported)
    table = json.loads((finished / "tables" / "baselines.json").read_text())
    used = next(row[1:] for row in table["rows"] if row[0] == "ours, as exported")
    assert [told["metrics"][f"exported/accuracy_{size}"] for size in range(1, 5)] == pytest.approx(
        [cell["mean"] for cell in used]
    )
    assert "task model" not in " ".join(told["tables"][0]["notes"])
    # A folder whose examples all say one desk answers otherwise: it is the folder that is measured.
    selector = Selector.load(exported)
    for example in selector.examples:
        selector.remove(example.id)
        selector.add(example.question, "elm", id=example.id)
    selector.save(tmp_path / "elms")
    assert {
        each["answer"] for record in evaluated(tmp_path / "elms")["records"] for each in record["demonstrations"]
    } == {"elm"}


def test_a_query_is_never_shown_its_own_solution():
    selector = small_selector()
    query = replace(SOURCE.read().held_out[0], id="twin")
    selector.add(query.question, query.answer, id="twin")
    assert "twin" in {example.id for example in selector.nearest(query.question)}
    asked = pooled(selector, [query])[0]
    assert len(asked.pool) == 24
    assert "twin" not in {example.id for example in asked.pool}


def test_a_file_of_solved_examples_is_exported(finished, tmp_path):
    config = load_experiment(finished).domain
    file = tmp_path / "solved.jsonl"
    rows = [
        {"id": f"mine-{number}", "question": f"north gold web kim new {word}", "answer": "elm"}
        for number, word in enumerate("abcdef")
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    selector = write_selector(config, finished / "model", tmp_path / "out", str(file))
    assert [example.id for example in Selector.load(tmp_path / "out").examples] == [row["id"] for row in rows]
    assert selector.trained.pool_size == 24
    file.write_text(json.dumps(rows[0]))
    with pytest.raises(ConfigError, match="there are 1, and the policy was trained to show 4"):
        write_selector(config, finished / "model", tmp_path / "no", str(file))


def test_one_bank_that_all_pools_are_the_nearest_of_is_exported_whole(tmp_path):
    def write(name: str, rows: list[dict]) -> str:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / name)

    words = [f"{first} {second}" for first in ("red", "blue", "old") for second in ("cat", "dog", "hen", "owl")]
    examples = write(
        "examples.jsonl",
        [
            *({"id": f"e{place}", "question": text, "answer": "yes"} for place, text in enumerate(words)),
            {"id": "e", "question": "?"},
        ],
    )
    queries = [{"id": f"q{place}", "question": text, "answers": ["yes"]} for place, text in enumerate(words[:6])]
    source = Files(
        queries=write("queries.jsonl", queries), examples=examples, embedder=HashedWords(), pool_size=2, num_held_out=2
    )
    questions = source.read()
    config = SelectionConfig.model_construct(source=source, shots=2)
    assert [example.id for example in store(config, questions, "held_out")] == [f"e{place}" for place in range(12)], (
        "without the one that has no answer"
    )
    named = [query | {"pool": ["e0", "e1"]} for query in queries]
    questions = source.model_copy(update={"queries": write("named.jsonl", named)}).read()
    assert {example.id for example in store(config, questions, "held_out")} == {"e0", "e1"}


def test_a_policy_of_other_embeddings_is_refused(finished, tmp_path):
    config = load_experiment(finished, ["domain.source.embedder.size=64"]).domain
    with pytest.raises(
        ConfigError, match=r"the policy reads embeddings of 128 numbers, and the source has \[\(64,\)\]"
    ):
        write_selector(config, finished / "model", tmp_path / "out")
