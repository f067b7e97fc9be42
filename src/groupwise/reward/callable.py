"""A reward of the user's own: any Python function, by import path or by entry point."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, final

from pydantic import Field, model_validator

from groupwise.config import ImportPath, call_user, check_arguments, user_callable
from groupwise.reward.base import Follows, Reward, RewardError, RewardFunction
from groupwise.reward.completions import CompletionForm, Text, as_messages, completion_text, prompt_text
from groupwise.reward.image import is_image, one_by_one
from groupwise.reward.scoring.table import TRAINER_ARGUMENTS, arguments_for, needed_columns

ENTRY_POINTS = "groupwise.rewards"
"""The entry point group in which an installed package can name its rewards."""


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
    completions: CompletionForm | None = None
    """The form in which completions are given: `text`, or `messages` (`[{"role": "assistant", "content": ...}]`). Unset
    gives messages where prompts are messages, as TRL does, and texts elsewhere; with `each` texts.
    """

    bounds: tuple[float, float] = (0.0, 1.0)
    """The lowest and the highest value it can give. `groups/all_wrong` and `groups/all_right` count groups at these
    values.
    """

    calls_function: ClassVar[bool] = True

    @property
    def completion_form(self) -> CompletionForm | None:
        return "text" if self.each and self.completions is None else self.completions

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
        """Returns the function that scores, with its arguments bound; refuses arguments that no parameter takes.

        Raises:
            ConfigError: there is nothing at `path`, or it does not take `arguments`.
        """
        loaded = user_callable(
            self.path, group=ENTRY_POINTS, write="a function reward(prompts, completions, **columns)"
        )
        place = f"path = {str(self.path)!r}"
        if isinstance(loaded, Reward):
            # A configured reward at a path or as an object loads what it needs itself.
            loaded = loaded.open()
        if inspect.isclass(loaded):
            function = call_user(loaded, self.arguments, place)
        else:
            check_arguments(loaded, self.arguments, place, all_of=False)
            function = functools.partial(loaded, **self.arguments) if self.arguments else loaded
        if self.each and isinstance(function, Follows):
            raise RewardError(
                f"{place}: a reward that remembers (follow, memory, recall) is called with whole batches; drop each"
            )
        return _EachMember(function, self.on_error, self.completions) if self.each else function

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts=prompts, completions=completions, **columns)


@final
class _EachMember:
    """A function of one prompt and one completion, called for every member of a batch. Its first two parameters take
    the prompt and the completion, whatever their names.
    """

    def __init__(
        self, function: Callable[..., Any], on_error: Literal["raise", "missing"], form: CompletionForm | None
    ) -> None:
        self.function, self.form = function, form
        self.on_error: Literal["raise", "missing"] = on_error
        positional = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        if len(positional) < 2 or inspect.iscoroutinefunction(function):
            signature = inspect.signature(function)
            raise RewardError(
                f"each = true needs a plain function of (prompt, completion, ...), got {signature}; drop each for a"
                " function of whole batches"
            )
        self._taken = {parameter.name for parameter in positional[:2]}
        self.needs = tuple(name for name in needed_columns(function) if name not in self._taken)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Any]:
        columns = {
            name: values for name, values in arguments_for(self.function, columns).items() if name not in self._taken
        }

        def score(completion: Any, member: int) -> Any:
            row = {name: values if name in TRAINER_ARGUMENTS else values[member] for name, values in columns.items()}
            return self.function(prompt_text(prompts[member]), self._in_form(completion), **row)

        return one_by_one(completions, score, self.on_error)

    def _in_form(self, completion: Any) -> Any:
        if is_image(completion):
            return completion
        if self.form == "messages":
            return as_messages(completion)
        return completion_text(completion)


def example(completions: Sequence[Text], word: str = "because", **columns: Sequence[Any]) -> list[float]:
    """Returns 1 if a word occurs and 0 if not: the shortest example of a reward.

    Args:
        word: text whose occurrence is rewarded.

    Example:
        >>> example(["because it is"])
        [1.0]
    """
    return [float(word in completion_text(completion)) for completion in completions]
