"""Code that a run folder names needs `--run-code`: all of it is named before any of it is imported. Code that the user
wrote into a file or behind the command needs none.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.experiment.tiny import TINY, tiny_record

from groupwise.config import ConfigError
from groupwise.experiment import load_experiment
from groupwise.experiment.code_consent import code_of

TRAP = "from pathlib import Path\nPath({marker!r}).touch()\ndef f(*_, **__): ...\n"

PLACES: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "map": ("domain.data.map", lambda c: c["domain"]["data"].update(map="trap:f")),
    "writer": ("domain.demonstrations.writer", lambda c: c["domain"]["demonstrations"].update(writer="trap:f")),
    "reward": (
        "domain.rewards.r.path",
        lambda c: c["domain"]["rewards"].update(r={"kind": "callable", "path": "trap:f"}),
    ),
    "win_rate": (
        "domain.rewards.r.function",
        lambda c: c["domain"]["rewards"].update(r={"kind": "win_rate", "function": "trap:f"}),
    ),
    "environment": (
        "domain.environment.path",
        lambda c: c["domain"].update(environment={"kind": "callable", "path": "trap:f"}),
    ),
    "tool": (
        "domain.environment.tools.t",
        lambda c: c["domain"].update(environment={"kind": "tools", "tools": {"t": "trap:f"}}),
    ),
    "callback": ("train.callbacks[0]", lambda c: c["train"].update(callbacks=["trap:f"])),
    "trust": ("trust.path", lambda c: c.update(trust={"kind": "callable", "path": "trap:f"})),
    "stage": (
        "stages.grpo.set.train.callbacks[0]",
        lambda c: c["stages"][1]["set"].update(train={"callbacks": ["trap:f"]}),
    ),
    "control": (
        "controls.supervised.set.domain.data.map",
        lambda c: c["controls"]["supervised"]["set"].update(domain={"data": {"map": "trap:f"}}),
    ),
}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a working directory with a module that leaves a file when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GROUPWISE_RUN_CODE", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "trap", raising=False)
    (tmp_path / "trap.py").write_text(TRAP.format(marker=str(tmp_path / "PWNED")))
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path


def foreign(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Makes a run folder that another person wrote."""
    table = json.loads(tiny_record())
    change(table)
    run = folder / "theirs"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(table))
    (run / "metrics.jsonl").write_text("")
    return run


@pytest.mark.parametrize("place", PLACES)
def test_every_place_is_named_and_nothing_is_imported(workspace: Path, place: str) -> None:
    key, change = PLACES[place]
    run = foreign(workspace, change)
    with pytest.raises(ConfigError) as caught:
        load_experiment(run)
    message = str(caught.value)
    assert f"{key} = trap:f" in message
    assert message.startswith(f"{run} names code")
    assert "--run-code" in message
    assert "\n" not in message
    assert not (workspace / "PWNED").exists()


def test_the_word_holds_for_one_command(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = foreign(workspace, PLACES["map"][1])
    assert load_experiment(run, run_code=True).domain.data.map == "trap:f"
    for said in (None, "0"):
        if said is not None:
            monkeypatch.setenv("GROUPWISE_RUN_CODE", said)
        with pytest.raises(ConfigError, match=r"domain\.data\.map = trap:f; .* --run-code"):
            load_experiment(run)
    monkeypatch.setenv("GROUPWISE_RUN_CODE", "1")
    load_experiment(run)


def test_a_file_of_the_users_is_not_asked_about(workspace: Path) -> None:
    lines = [
        'extends = "tiny.toml"',
        "[train]",
        'callbacks = ["trap:f"]',
        "[trust]",
        'kind = "callable"',
        'path = "soft:Soft"',
    ]
    (workspace / "mine.toml").write_text("\n".join(lines))
    (workspace / "soft.py").write_text(
        "from groupwise.objective.slot import TrustSlot\nclass Soft(TrustSlot):\n    scope = 'decision'\n"
        "    def __call__(self, log_ratio, decisions): ...\n"
    )
    assert load_experiment(workspace / "mine.toml").train.callbacks == ["trap:f"]
    run = foreign(workspace, lambda table: None)
    assert load_experiment(run, ["train.callbacks=['trap:f']", "domain.data.map=trap:f"]).domain.data.map == "trap:f"


def test_a_toml_file_in_a_run_folder_is_of_the_folder_and_so_is_what_extends_it(workspace: Path) -> None:
    run = foreign(workspace, PLACES["callback"][1])
    (run / "exp.toml").write_text(
        (workspace / "tiny.toml").read_text().replace("[train]\n", '[train]\ncallbacks = ["trap:f"]\n')
    )
    (workspace / "mine.toml").write_text('extends = "theirs"\n')
    (workspace / "link.toml").symlink_to(run / "exp.toml")
    for name in (run / "exp.toml", workspace / "mine.toml", workspace / "link.toml"):
        with pytest.raises(ConfigError, match=r"train\.callbacks\[0\] = trap:f"):
            load_experiment(name)
    (run / "config.json").rename(workspace / "given.json")
    with pytest.raises(ConfigError, match=r"given\.json names code"):
        load_experiment(workspace / "given.json")


def test_a_name_of_the_package_is_no_pass(workspace: Path) -> None:
    paths = [
        "groupwise_look.compare.grids:subprocess.Popen",
        "groupwise.cli.export:export",
        "groupwise.reward.callable:find",
        "groupwise.checkpoint.atomic:write_file",
        "groupwise.domain.language.source.toys:random.seed",
        "an_entry_point",
    ]
    rewards = {f"r{place}": {"kind": "callable", "path": path} for place, path in enumerate(paths)}
    run = foreign(workspace, lambda table: table["domain"]["rewards"].update(rewards))
    with pytest.raises(ConfigError) as caught:
        load_experiment(run)
    for place, path in enumerate(paths):
        assert f"domain.rewards.r{place}.path = {path}" in str(caught.value)


def test_a_shipped_experiment_is_not_asked_about_as_a_run_folder(workspace: Path) -> None:
    run = workspace / "language_countdown"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(load_experiment("language_countdown").table()))
    (run / "metrics.jsonl").write_text("")
    assert code_of(load_experiment(run))


def test_hostile_names_stay_in_one_line(workspace: Path) -> None:
    rewards = {f"r\n\x1b[2J{number}" + "x" * 500: {"kind": "callable", "path": "trap:f"} for number in range(50)}
    run = foreign(workspace, lambda table: table["domain"].update(rewards={**table["domain"]["rewards"], **rewards}))
    with pytest.raises(ConfigError) as caught:
        load_experiment(run)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 3000
    assert "and 38 more" in message
    assert message.endswith("(GROUPWISE_RUN_CODE=1 in a job's template)")


def test_code_cannot_hide_behind_many_names_of_other_code(workspace: Path) -> None:
    rewards = {f"r{number}": {"kind": "callable", "path": "harmless:f"} for number in range(50)} | {
        "z": {"kind": "callable", "path": "os:system"}
    }
    run = foreign(workspace, lambda table: table["domain"].update(rewards={**table["domain"]["rewards"], **rewards}))
    with pytest.raises(
        ConfigError,
        match=r"domain\.rewards\.r0\.path = harmless:f, domain\.rewards\.z\.path = os:system, .*and 39 more",
    ):
        load_experiment(run)


def restoration(workspace: Path, network: dict[str, Any]) -> Path:
    model = workspace / "model"
    model.mkdir()
    (model / "network.json").write_text(json.dumps({"kind": "network", "network": network}))
    (model / "model.safetensors").write_bytes(b"")
    return model


def test_a_models_folder_that_names_its_network_is_asked_about(workspace: Path) -> None:
    model = restoration(workspace, {"kind": "callable", "path": "trap:f"})
    changes = ["domain.model.kind=pretrained", f"domain.model.path={model}", "controls=null"]
    with pytest.raises(ConfigError) as caught:
        load_experiment("restoration", changes)
    assert "network.json.network.path = trap:f" in str(caught.value)
    load_experiment("restoration", changes, run_code=True)
    assert not (workspace / "PWNED").exists()
