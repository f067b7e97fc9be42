"""`python -m groupwise`, for where the command is not on the path."""

from groupwise.cli.app import main

main()
