"""The fixtures of the tests of verbs."""

from tests.cli.conftest import finished, groupwise, tiny_file

__all__ = ["finished", "groupwise", "tiny_file"]
