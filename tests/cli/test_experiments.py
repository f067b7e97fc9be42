"""`experiments`: every shipped one, without loading anything heavy."""

from __future__ import annotations

import subprocess
import sys

from groupwise.experiment.catalogue import shipped


def listed(text: str) -> list[str]:
    return [name for name in shipped() if any(line.split()[:1] == [name] for line in text.splitlines())]


def test_all_lists_the_experiments_of_the_sources_too(groupwise):
    ended = groupwise("experiments")
    assert ended.status == 0, ended
    assert listed(ended.out) == [name for name in shipped() if not name.startswith("source_")]
    assert "17 more" in ended.out
    ended = groupwise("experiments", "--all")
    assert (ended.status, listed(ended.out)) == (0, shipped()), ended
    assert "--all" not in ended.out


def test_listing_and_help_start_without_torch():
    code = (
        "import sys; from groupwise.cli.app import app\n"
        "for arguments in (['experiments'], ['--help'], ['train', '--help']): app(arguments, standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
