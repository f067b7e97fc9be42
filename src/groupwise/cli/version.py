"""`groupwise version`: what is installed."""

from __future__ import annotations


def version() -> None:
    """Print the versions of Groupwise and of what it stands on."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from groupwise.cli.output import console

    console().print(f"groupwise {installed('groupwise')}")
    console().print(f"python {platform.python_version()} ({platform.platform()})")
    for name in ("torch", "transformers", "peft", "pydantic"):
        try:
            console().print(f"{name} {installed(name)}")
        except PackageNotFoundError:
            console().print(f"{name} is not installed")
