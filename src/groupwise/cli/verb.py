"""A verb of the command line, which answers another system's options with what they are called here."""

from __future__ import annotations

from typing import Any, final

from typer.core import TyperCommand


@final
class Verb(TyperCommand):
    """A command; an option that it does not have is looked up among those of the sources' scripts."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses as typer does, and answers options of other systems.

        Raises:
            ConfigError: options of another system; all of them are answered.
        """
        asked = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # By its name: typer brings a click of its own, or in older versions uses the one that is installed.
            if type(error).__name__ != "NoSuchOption":
                raise
            from groupwise.config import ConfigError, Problem
            from groupwise.experiment.counterparts import flags

            if not (counterparts := flags(asked)):
                raise
        raise ConfigError([Problem("", answer) for answer in counterparts], source=f"groupwise {ctx.info_name}")
