"""The schema an editor reads."""

from __future__ import annotations

from groupwise.config import Config, json_schema


class Inner(Config):
    """A part.

    More about it.

    Args:
        size: how large,
            in tokens.
        other (nats): second.
    """

    size: int = 3
    other: float = 1.0


class Outer(Config):
    """The whole."""

    inner: Inner = Inner()


def test_docstrings_become_descriptions_and_unknown_keys_are_refused():
    schema = json_schema(Outer, title="Experiment")
    inner = schema["$defs"]["Inner"]
    assert schema["title"] == "Experiment"
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert inner["description"] == "A part."
    assert inner["additionalProperties"] is False
    assert inner["properties"]["size"]["description"] == "how large, in tokens."
    assert inner["properties"]["other"]["description"] == "second."
