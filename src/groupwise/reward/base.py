"""The base class of every configured reward: a weight, a time limit, and the consequence of a failure."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, final, runtime_checkable

from pydantic import Field

from groupwise.config import Config
from groupwise.config.errors import Seconds
from groupwise.reward.completions import CompletionForm, Text

# A reward with its components: numbers beside the reward, for rewards that adapt to their own components during
# training.

Groups = Sequence[Mapping[str, Sequence[float]]]
"""One entry a group: field -> its values for the group's members."""


@final
@dataclass(frozen=True)
class Parted:
    """The return value of a reward that reports its components: the rewards, and the fields from which they were
    computed.

    Args:
        values: one a member, as a reward returns them.
        fields: field -> one number a member.

    Example:
        >>> Parted([1.5, 0.0], {"correct": [1.0, 0.0], "accuracy": [0.5, 0.0]}).fields["accuracy"]
        [0.5, 0.0]
    """

    values: Sequence[Any]
    fields: Mapping[str, Sequence[float]]


@runtime_checkable
class Follows(Protocol):
    """An opened reward that changes with the batches that training has seen. Its memory is explicit, JSON-able and part
    of every checkpoint.

    `follow` is called once a batch, after the batch was rewarded, with the fields of all processes: a batch is rewarded
    by the memory of earlier batches, which is the same on every process.
    """

    def memory(self) -> dict[str, Any]:
        """Returns the reward's memory; empty before the first batch."""
        ...

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restores a memory; an empty memory resets the reward."""
        ...

    def follow(self, groups: Groups) -> dict[str, float]:
        """Updates the memory with a batch.

        Args:
            groups: of all processes, in the order they were drawn.

        Returns:
            numbers for the metrics, by name.
        """
        ...


@final
@dataclass(frozen=True)
class Noted:
    """A reward value and the name of an event, which the reward table counts.

    A reward may return this in place of a number; `value = None` is a missing reward with its reason.

    Args:
        value: the reward, or None where there is none.
        event: a short name to count by, such as `judge_unparsable`.
        detail: an explanation, which is shown once.

    Example:
        >>> Noted(None, "judge_failed", "503 three times").event
        'judge_failed'
    """

    value: float | None
    event: str
    detail: str = ""


Value = float | Noted | None
RewardFunction = Callable[..., "Sequence[Value] | Parted | Awaitable[Sequence[Value] | Parted]"]
"""`reward(prompts, completions, **columns) -> list[float | None]`, one number a member, sync or async: the signature of
TRL. `completions` are texts or chats (`groupwise.reward.completions`), or images (`groupwise.reward.image`), one a
member.
"""


@final
@dataclass(frozen=True)
class MemberLimits:
    """The limits of one member, where a reward is scored member by member in a process that can be killed.

    Args:
        seconds: for one member; it is tried with a tenth of that first, so that slow ones do not keep the others
            waiting.
        memory_mb: mebibytes beyond what the process has before it begins.
        wrong: the reward of a member that exceeds either.
    """

    seconds: float
    memory_mb: int
    wrong: float = 0.0


class Reward(Config):
    """A reward that is its own configuration and its own function.

    Subclasses add a `kind`, their parameters, and `__call__(prompts, completions, **columns) -> list`.

    Example:
        >>> from groupwise.reward import ExactAnswer
        >>> ExactAnswer(weight=2.0, timeout_seconds=5.0).needs
        ('answer',)
    """

    weight: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Factor in the sum of rewards. 0 means: measured and logged, never trained on."""
    timeout_seconds: Seconds | None = 60.0
    """Seconds one batch may take; after that the reward is missing for the batch and counted. No value waits for ever.
    """
    on_error: Literal["raise", "missing"] = "raise"
    """The consequence of an exception inside the reward: stop the run, or count as a missing reward."""
    role: Literal["train", "judge"] = "train"
    """A judge is measured in evaluation only and never trained on; its weight is not used."""
    isolation: Literal["thread", "process"] = "thread"
    """The place where the reward runs. A process can be killed when it hangs; a thread is abandoned, and cannot be
    stopped inside a regular expression.
    """

    calls_function: ClassVar[bool] = False
    """True for a reward that calls a function of the user with completions in its form and the trainer's arguments."""

    @property
    def completion_form(self) -> CompletionForm | None:
        """The form in which its function reads completions; None leaves it to the prompts."""
        return None

    @property
    def trains(self) -> bool:
        """True where a policy is trained on the reward: its role is not judge, and its weight is not 0."""
        return self.role != "judge" and self.weight != 0

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the data columns that the reward reads."""
        return ()

    @property
    def reads(self) -> tuple[str, ...] | None:
        """Names of all data columns that the reward reads, optional ones included; None where they are not known."""
        return None

    @property
    def member_limits(self) -> MemberLimits | None:
        """The limits of one member; None where a batch is scored at once, within `timeout_seconds` alone."""
        return None

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest value that the reward can give, at which a group counts as all wrong or all right.
        A reward without bounds keeps 0 and 1.
        """
        return (0.0, 1.0)

    @property
    def remarks(self) -> Sequence[str]:
        """Sentences that a reader should know about this reward on this machine; they are printed when a run starts."""
        return ()

    def unreadable(self, row: Mapping[str, Any]) -> str | None:
        """Returns why the members of a row can get no reward, such as an expected answer that is none; None where they
        can.

        Args:
            row: the columns of one prompt.
        """
        return None

    def open(self) -> RewardFunction:
        """Returns the function that scores, after loading the models and data that it needs; most rewards are that
        function themselves.
        """
        return self

    @abstractmethod
    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> Any:
        """Returns one number a member."""


@final
class RewardError(ValueError):
    """A reward that raised, returned something that is not a reward, or lacks what it needs.

    Args:
        message: the whole sentence, already naming reward, value and what is allowed.
        reward: the name of the reward.
        prompt: an excerpt of the prompt, where one member is meant.
        member: the place of the member in the batch, where one is meant.

    Example:
        >>> RewardError("reward 'length': returned nan for member 3", reward="length", member=3).member
        3
    """

    def __init__(
        self, message: str, *, reward: str | None = None, prompt: str | None = None, member: int | None = None
    ) -> None:
        super().__init__(message)
        self.reward, self.prompt, self.member = reward, prompt, member
