"""`python -m groupwise`, for where the command is not on the path."""

from __future__ import annotations

from groupwise.cli.app import main

main()
