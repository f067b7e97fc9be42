"""`experiments`: every shipped one, without loading anything heavy."""

from __future__ import annotations

import subprocess
import sys

from groupwise.experiment.catalogue import shipped


def test_every_shipped_experiment_is_listed(groupwise):
    ended = groupwise("experiments")
    assert ended.status == 0, ended
    assert all(any(line.strip().startswith(name) for line in ended.out.splitlines()) for name in shipped())


def test_listing_and_help_start_without_torch():
    code = (
        "import sys; from groupwise.cli.app import app\n"
        "for arguments in (['experiments'], ['--help'], ['train', '--help']): app(arguments, standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
