"""The command, called as a shell calls it but inside this process, and one finished run that several tests look at."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.experiment.tiny import TINY

from groupwise.cli.app import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def groupwise(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()

    def call(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["groupwise", *map(str, arguments)])
        try:
            main()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        captured = capsys.readouterr()
        return Ended(status, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("experiment") / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def finished(tiny_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from groupwise import load_experiment, train

    return train(load_experiment(tiny_file), out=tmp_path_factory.mktemp("runs") / "finished").folder.path
