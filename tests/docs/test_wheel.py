"""The wheel, in an environment of its own, runs the first code of the README and knows what comes by entry points."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tests.docs.page_commands import on_a_small_model, own_task

ROOT = Path(__file__).resolve().parents[2]

SAID = """
import groupwise, pathlib, sys
assert pathlib.Path(groupwise.__file__).is_relative_to(sys.prefix), groupwise.__file__
print(sorted(run.summary), len(run.metrics), run.doctor() is not None)
"""


@pytest.mark.nightly
def test_a_wheel_in_a_fresh_environment_runs_the_readmes_first_code(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path / "dist", ROOT], check=True)
    venv.create(tmp_path / "fresh", with_pip=False)
    python = tmp_path / "fresh" / "bin" / "python"
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", "--quiet", "--no-deps", wheel], check=True)
    (site,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    # What the wheel needs lies behind it; installed again it would be gigabytes. Nobody reads the .pth files there.
    (site / "needed.pth").write_text(
        "\n".join({sysconfig.get_path("purelib"), *filter(None, sys.path)} - {str(ROOT / "src")})
    )
    own_task(tmp_path)
    (code, *_) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    (tmp_path / "first.py").write_text(on_a_small_model(code) + SAID, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([python, "first.py"], cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1].startswith("['after', 'baseline', 'before'")
