"""A reward of your own: any Python function, by import path or by entry point."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Literal, Self, final

from pydantic import Field, model_validator

from groupwise.config import ImportPath, require_open, user_module
from groupwise.reward.base import Reward, RewardFunction
from groupwise.reward.error import RewardError
from groupwise.reward.image import is_image, one_by_one
from groupwise.reward.scoring.columns import arguments_for, needed_columns
from groupwise.reward.text import Text, completion_text, prompt_text

ENTRY_POINTS = "groupwise.rewards"
"""The entry point group in which an installed package can name its rewards."""


def find(path: ImportPath) -> Any:
    """The object at `package.module:name`, or the entry point of that name. A module may lie in the working directory.

    Args:
        path: `package.module:name`, or the name of an entry point.

    Returns:
        what stands there; it can be called.

    Raises:
        RewardError: there is none; names what is there.

    Example:
        >>> find(ImportPath("math:sqrt"))(4.0)
        2.0
    """
    if ":" not in path:
        points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
        if path not in points:
            known = ", ".join(sorted(points)) or "none"
            raise RewardError(
                f"path = {path!r} is no entry point of {ENTRY_POINTS!r} (there: {known}); for a function write"
                " 'package.module:function'"
            )
        require_open(path)
        return points[path].load()
    module_name, name = path.module, path.name
    try:
        found: Any = user_module(path)
    # A user's module may fail in any way while it is imported.
    except Exception as error:
        message = f"path = {path!r}: the module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        raise RewardError(f"{message}; it must be installed or lie in the working directory") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise RewardError(
                f"path = {path!r}: {module_name!r} has no {name!r}; it has"
                f" {_own(found) or 'nothing that can be called'}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise RewardError(
            f"path = {path!r} is of type {type(found).__name__} and cannot be called; name a function reward(prompts,"
            " completions, **columns)"
        )
    return found


def _own(place: Any) -> str:
    """What a module or class defines itself and can be called, leaving out what it imports."""
    home = getattr(place, "__module__", None) or getattr(place, "__name__", None)
    found = {name for name, each in vars(place).items() if callable(each) and getattr(each, "__module__", home) == home}
    return ", ".join(sorted(name for name in found if not name.startswith("_")))


@final
class CallableReward(Reward):
    """A function `reward(prompts, completions, **columns) -> list[float | None]`, sync or async, or an object or class
    that can be called so.

    It is given those of `prompts`, `completions` and the data columns that it has parameters for, all by name;
    parameters without a default are columns it needs. A class is built once with `arguments`; a function is given them
    with every call.

    Example:
        >>> reward = CallableReward(path="groupwise.reward.callable:example", arguments={"word": "yes"}).open()
        >>> reward(prompts=[""] * 2, completions=["yes", "no"])
        [1.0, 0.0]
    """

    kind: Literal["callable"] = "callable"
    path: ImportPath
    """`package.module:function`, or the name of an entry point of the group `groupwise.rewards`."""
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    """Further arguments by name; they win over data columns of the same name."""
    each: bool = False
    """Call `reward(prompt, completion, **columns of this member)` once a member, on texts (or images), and expect one
    number. Under `on_error = "missing"` a member that raises is missing and counted, and the others keep theirs.
    """

    bounds: tuple[float, float] = (0.0, 1.0)
    """The lowest and the highest value it can give, at which `groups/all_wrong` and `groups/all_right` count a group.
    """

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.bounds[0] < self.bounds[1]:
            raise ValueError(
                f"bounds = {list(self.bounds)}: the lowest value stands first, and below the highest; write for example"
                " bounds = [-1.0, 1.0]"
            )
        return self

    @property
    def ends(self) -> tuple[float, float]:
        return self.bounds

    def open(self) -> RewardFunction:
        """The function that scores, its arguments bound; refuses arguments that no parameter takes.

        Raises:
            RewardError: there is nothing at `path`, or it does not take `arguments`.
        """
        found = find(self.path)
        if isinstance(found, Reward):
            # A configured reward at a path or as an object loads what it needs itself.
            found = found.open()
        try:
            function: Any = (
                found(**self.arguments)
                if inspect.isclass(found)
                else functools.partial(found, **self.arguments)
                if self.arguments
                else found
            )
            # Refuses arguments that no parameter takes before the first batch does.
            if not inspect.isclass(found):
                inspect.signature(found).bind_partial(**self.arguments)
        except TypeError as error:
            raise RewardError(
                f"path = {self.path!r} does not take arguments = {dict(self.arguments)}: {error}"
            ) from error
        return _EachMember(function, self.on_error) if self.each else function

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts=prompts, completions=completions, **columns)


@final
class _EachMember:
    """A function of one prompt and one completion as a function of a batch; its first two parameters are those,
    whatever their names.
    """

    def __init__(self, function: Callable[..., Any], on_error: Literal["raise", "missing"]) -> None:
        self.function = function
        self.on_error: Literal["raise", "missing"] = on_error
        named = [
            each
            for each in inspect.signature(function).parameters.values()
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        ]
        if len(named) < 2 or inspect.iscoroutinefunction(function):
            given = inspect.signature(function)
            raise RewardError(
                f"each = true needs a plain function of (prompt, completion, ...), got {given}; drop each for a"
                " function of whole batches"
            )
        self._taken = {each.name for each in named[:2]}
        self.needs = tuple(name for name in needed_columns(function) if name not in self._taken)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Any]:
        columns = {
            name: values for name, values in arguments_for(self.function, columns).items() if name not in self._taken
        }

        def score(completion: Any, member: int) -> Any:
            given = completion if is_image(completion) else completion_text(completion)
            return self.function(
                prompt_text(prompts[member]), given, **{name: values[member] for name, values in columns.items()}
            )

        return one_by_one(completions, score, self.on_error)


def example(completions: Sequence[Text], word: str = "because", **columns: Sequence[Any]) -> list[float]:
    """A reward as short as they come: whether a word occurs.

    Args:
        completions: one a member.
        word: what is looked for.

    Example:
        >>> example(["because it is"])
        [1.0]
    """
    return [float(word in completion_text(completion)) for completion in completions]
