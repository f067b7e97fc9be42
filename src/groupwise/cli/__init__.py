"""The command `groupwise`: one file a verb. A verb imports what it needs when it is called, so that the command starts
at once.
"""

from groupwise.cli.app import app, main

__all__ = ["app", "main"]
