"""The schema an editor reads."""

from typing import Annotated, Literal

from pydantic import Field

from groupwise.config import Config, json_schema
from groupwise.config.shape import Shape


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


# Places of a configuration, followed through its annotations.


class Clip(Config):
    kind: Literal["clip"] = "clip"
    low: float = 0.2


class Gaussian(Config):
    kind: Literal["gaussian", "normal"] = "gaussian"
    mode: Literal["a", "b"] = "a"


class Whole(Config):
    trust: Annotated[Clip | Gaussian, Field(discriminator="kind")] = Clip()
    named: dict[str, Clip] = Field(default_factory=dict)
    pair: tuple[Clip, Gaussian] = (Clip(), Gaussian())
    many: list[Clip | None] = Field(default_factory=list)


def test_labels_of_union_branches_are_no_part_of_the_path():
    path, shape = Shape.of(Whole).follow(("trust", "gaussian", "mode"))
    assert path == ("trust", "mode")
    assert shape.values() == ("a", "b")
    path, shape = Shape.of(Whole).follow(("trust", "gaussian", "sigma"), unknown_last=True)
    assert path == ("trust", "sigma")
    assert shape.names() == ("kind", "mode")


class Network(Config):
    kind: Literal["network"] = "network"
    network: Clip = Clip()
    rate: int = 1


class Tagged(Config):
    model: Annotated[Network | Gaussian, Field(discriminator="kind")] = Network()


def test_a_key_called_as_a_kind_is_told_from_it():
    shape = Shape.of(Tagged)
    assert shape.follow(("model", "network", "rate"))[0] == ("model", "rate")
    assert shape.follow(("model", "network", "network", "low"))[0] == ("model", "network", "low")
