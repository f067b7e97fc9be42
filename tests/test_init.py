"""The public names: all there, imported when they are used."""

from __future__ import annotations

import subprocess
import sys

import groupwise


def test_every_public_name_is_what_it_says():
    names = {name: getattr(groupwise, name).__name__ for name in groupwise.__all__}
    assert names == {name: name for name in groupwise.__all__}
    assert set(groupwise.__all__) <= set(dir(groupwise))


def test_importing_the_package_imports_nothing_heavy():
    code = "import groupwise, sys; print(sorted({'torch', 'pydantic', 'transformers'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
