"""Scoring a batch: every reward at once, each within its time, each value checked."""

import copy
import functools
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Self, cast, final

from groupwise.config import ConfigError, why_failed
from groupwise.plugins import is_shipped
from groupwise.reward.base import Follows, Groups, Parted, Reward, RewardError, RewardFunction
from groupwise.reward.completions import CompletionForm, Content, Text, in_form, shape_advice
from groupwise.reward.scoring.process import ProcessReward
from groupwise.reward.scoring.table import (
    TRAINER_ARGUMENTS,
    RewardEvent,
    RewardLog,
    RewardTable,
    TrainerState,
    arguments_for,
    check_columns,
    checked_values,
    column_advice,
    needed_columns,
    split_maps,
)
from groupwise.reward.scoring.threads import EventLoop, Job

_METHODS_OF_MEMORY = ("follow", "memory", "recall")


@final
class _OpenReward:
    """A reward ready to be called, with its settings and its last call."""

    def __init__(self, name: str, reward: Reward | RewardFunction, loop: EventLoop) -> None:
        configured = isinstance(reward, Reward)
        self.name, self._loop = name, loop
        self.function = _opened(name, reward)
        self.follows = isinstance(self.function, Follows)
        self.needs = tuple(dict.fromkeys((*(reward.needs if configured else ()), *needed_columns(self.function))))
        self.judge = getattr(reward, "role", "train") == "judge"
        self.weight = 0.0 if self.judge else float(getattr(reward, "weight", 1.0))
        self.timeout_seconds: float | None = getattr(reward, "timeout_seconds", 60.0)
        self.on_error: str = getattr(reward, "on_error", "raise")
        self.bounds: tuple[float, float] = reward.ends if configured else getattr(reward, "bounds", (0.0, 1.0))
        self.remarks: Sequence[str] = getattr(reward, "remarks", ())
        self.unreadable = reward.unreadable if configured else None
        self.written_by_user = not configured or reward.calls_function
        self.form: CompletionForm | None = _form(name, reward)
        # Other rewards run at the same time on the same values, and later steps get them again: a reward that may
        # change them in place is given copies.
        self.copies = self.written_by_user or not is_shipped(type(reward).__module__)
        self.job: Job | None = None

    def start(self, batch: Mapping[str, Any], state: TrainerState) -> tuple[Job, RewardLog, dict[str, Any]]:
        """Begins to score a batch; returns the call, its log and what it is given. A function of a user gets
        completions in its form, and the trainer's arguments.
        """
        log, given = RewardLog(), dict(batch)
        if self.written_by_user:
            given["completions"] = in_form(batch["prompts"], batch["completions"], self.form)
            given |= log.arguments(state)
        arguments = arguments_for(self.function, given)
        if self.copies:
            kept = {name: arguments.pop(name) for name in TRAINER_ARGUMENTS if name in arguments}
            arguments = copy.deepcopy(arguments) | kept
        self.job = Job(self.name, lambda: self.function(**arguments), self._loop)
        return self.job, log, given

    def abandon(self) -> None:
        """Gives up a call under way. A process is killed, because its late answer would be taken for the next
        batch's.
        """
        if self.job is not None:
            self.job.leave()
            self.job = None
        getattr(self.function, "cancel", lambda: None)()

    def finish(
        self, job: Job, given: Mapping[str, Any], prompts: Sequence[Text]
    ) -> tuple[list[float | None], list[RewardEvent], list[Any] | None]:
        """Waits for the values of a call, with the events and the maps of its members."""
        missing: list[float | None] = [None] * len(prompts)
        if not job.ends_within(self.timeout_seconds):
            self.abandon()
            job.seconds = cast(float, self.timeout_seconds)
            killed = isinstance(self.function, ProcessReward)
            advice = "" if killed else ', or write isolation = "process" so that what hangs is killed'
            detail = f"longer than {self.timeout_seconds:g} s for a batch of {len(prompts)}; raise its timeout_seconds"
            return missing, [RewardEvent("timeout", self.name, count=len(prompts), detail=detail + advice)], None
        if job.error is None:
            parted = isinstance(job.value, Parted)
            if self.follows or parted:
                _check_fields(self.name, job.value, len(prompts))
            returned, maps = split_maps(self.name, job.value.values if parted else job.value)
            return *checked_values(self.name, returned, prompts), maps
        reason = why_failed(job.error)
        advice = ""
        if self.written_by_user:
            advice = column_advice(reason, given) or shape_advice(reason, given["completions"])
        reason += advice
        if self.on_error == "missing":
            return missing, [RewardEvent("error", self.name, count=len(prompts), detail=reason)], None
        # If no member has a value, a reward of another form would be missing for ever.
        remedy = "" if advice else '; mend it, or write on_error = "missing" to go on without it'
        raise RewardError(f"reward {self.name!r} raised {reason}{remedy}", reward=self.name) from job.error


def _opened(name: str, reward: Reward | RewardFunction) -> RewardFunction:
    function: Any = reward
    try:
        if isinstance(reward, Reward):
            function = ProcessReward(reward) if reward.isolation == "process" else reward.open()
    except (ConfigError, RewardError, RuntimeError, ImportError) as error:
        raise RewardError(f"reward {name!r}: {error}", reward=name) from error
    present = [method for method in _METHODS_OF_MEMORY if callable(getattr(function, method, None))]
    missing = [method for method in _METHODS_OF_MEMORY if method not in present]
    if missing and ("follow" in present or len(present) > 1):
        raise RewardError(
            f"reward {name!r} has {' and '.join(present)}, and no {' and no '.join(missing)}; a reward that remembers"
            " has follow, memory and recall, and without one of them nothing would be kept; write all three, or give"
            " what is meant otherwise another name",
            reward=name,
        )
    if not callable(function):
        advice = "give a configured reward or a function reward(prompts, completions, **columns)"
        raise RewardError(f"reward {name!r} is of type {type(reward).__name__}; {advice}", reward=name)
    return cast(RewardFunction, function)


def _check_fields(name: str, returned: Any, num_members: int) -> None:
    """Refuses fields of another length than the members, or none where the reward has a memory that follows them."""
    if not isinstance(returned, Parted):
        raise RewardError(
            f"reward {name!r} has follow, which is given the fields of what it returns, and returned a"
            f" {type(returned).__name__}; return groupwise.reward.base.Parted(values, fields)",
            reward=name,
        )
    for field, values in returned.fields.items():
        if len(values) != num_members:
            raise RewardError(
                f"reward {name!r} returned {len(values)} values of the field {field!r} for {num_members} members; write"
                " one entry a member",
                reward=name,
            )


def _form(name: str, reward: Any) -> CompletionForm | None:
    """Returns the form of completions that a reward asks for; None means the form of the prompts."""
    form = reward.completion_form if isinstance(reward, Reward) else getattr(reward, "completions", None)
    if form is not None and form not in ("text", "messages"):
        raise RewardError(
            f"reward {name!r}: completions = {form!r} is no form of completions; write 'text' or 'messages', or leave"
            " it out",
            reward=name,
        )
    return form


@final
class Rewards:
    """Named rewards, opened once (models loaded, processes started) and used for every batch.

    Args:
        rewards: name -> configured reward, or a function `reward(prompts, completions, **columns) -> list`, sync or
            async. A function or object may carry `weight`, `timeout_seconds`, `on_error`, `role`, `bounds`, `needs` and
            `completions` as attributes. A function is given `trainer_state`, `log_metric` and `log_extra` as well.

    Attributes:
        state: the progress of training, which a function is given as `trainer_state`.
        follows: true where a reward follows training.

    Raises:
        RewardError: a reward that cannot be opened.

    Example:
        >>> from groupwise.reward import Length
        >>> def shout(completions, **columns):
        ...     return [float(text.isupper()) for text in completions]
        >>> with Rewards({"brief": Length(target=2, weight=0.5), "shout": shout}) as rewards:
        ...     rewards.score(["say hi"] * 2, ["HI THERE", "hi"]).total()
        [1.5, 0.25]
    """

    def __init__(self, rewards: Mapping[str, Reward | RewardFunction]) -> None:
        self._rewards: dict[str, _OpenReward] = {}
        self._loop = EventLoop()
        self.state = TrainerState()
        try:
            for name, reward in rewards.items():
                self._rewards[name] = _OpenReward(name, reward, self._loop)
        except BaseException:
            self.close()
            raise
        self._following = [name for name, reward in self._rewards.items() if reward.follows]
        self.follows = bool(self._following)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all rewards, judges included."""
        return tuple(self._rewards)

    @property
    def needs(self) -> dict[str, tuple[str, ...]]:
        """The data columns that each reward cannot do without."""
        return {name: reward.needs for name, reward in self._rewards.items()}

    @property
    def in_form_of_prompts(self) -> tuple[str, ...]:
        """Names of the rewards that are given messages where prompts are messages, and texts elsewhere."""
        return tuple(name for name, reward in self._rewards.items() if reward.written_by_user and reward.form is None)

    @property
    def remarks(self) -> list[str]:
        """Remarks of the rewards on this machine, each sentence with the reward's name."""
        return [f"reward {reward.name!r}: {remark}" for reward in self._rewards.values() for remark in reward.remarks]

    def remarks_of_rows(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Reports for which rows of the data a reward can give nothing, each reward in a sentence.

        Args:
            rows: the columns of each prompt.
        """
        remarks: list[str] = []
        for reward in self._rewards.values():
            reasons = [why for row in rows if reward.unreadable is not None and (why := reward.unreadable(row))]
            if reasons:
                remarks.append(
                    f"reward {reward.name!r}: {len(reasons)} of {len(rows)} rows give no reward (gold_unparsable):"
                    f" {reasons[0]}"
                )
        return remarks

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuses data that lack a column some reward needs.

        Raises:
            RewardError: naming the reward, the column and the columns that exist.
        """
        for reward in self._rewards.values():
            check_columns(reward.name, reward.needs, columns)

    def score(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Any],
        columns: Mapping[str, Sequence[Any]] | None = None,
        *,
        judges: bool = False,
    ) -> RewardTable:
        """Scores a batch with all rewards. They run at the same time, so that the batch takes as long as the slowest
        reward.

        A reward that runs past its time is missing for the batch and counted (`timeout`); one that raises stops the
        run, or is missing and counted (`error`) under `on_error = "missing"`. A returned value that is not a reward is
        always an error.

        Args:
            prompts: `B` strings or chats, one a member.
            completions: `B` strings or chats; images, where a domain makes those: `torch.uint8` `[H, W]` or `[H, W, 3]`
                on the CPU (`groupwise.reward.image`).
            columns: name -> `B` entries of the data.
            judges: also measure the rewards whose role is `judge`; for evaluation.

        Returns:
            Every reward by itself, with weights, seconds and events. No member gives empty lists.

        Raises:
            RewardError: a missing column, a reward that raised, a value that is not a reward; names reward, place and
                value.

        Example:
            >>> from groupwise.reward import ExactAnswer
            >>> with Rewards({"exact": ExactAnswer()}) as rewards:
            ...     table = rewards.score(["2 + 2"] * 2, ["4", "5"], {"answer": [4, 4]})
            >>> table.values, table.metrics()["rewards/exact/mean"]
            ({'exact': [1.0, 0.0]}, 0.5)
        """
        columns = dict(columns or {})
        lengths = {
            "prompts": len(prompts),
            "completions": len(completions),
            **{name: len(values) for name, values in columns.items()},
        }
        if len(set(lengths.values())) > 1:
            raise RewardError(
                f"prompts, completions and columns must have one entry a member each, got lengths {lengths}"
            )
        used = [reward for reward in self._rewards.values() if judges or not reward.judge]
        for reward in used:
            check_columns(reward.name, reward.needs, list(columns))
        batch = {**columns, "prompts": prompts, "completions": completions}
        running = [(reward, *reward.start(batch, self.state)) for reward in used] if prompts else []
        values: dict[str, Sequence[float | None]] = {reward.name: [] for reward in used}
        events: list[RewardEvent] = []
        maps: dict[str, list[Any]] = {}
        logged: dict[str, list[float]] = {}
        extras: dict[str, list[Any]] = {}
        seconds: dict[str, float] = {}
        fields: dict[str, Any] = {}
        try:
            for reward, job, log, given in running:
                values[reward.name], new_events, member_maps = reward.finish(job, given, prompts)
                events += new_events
                # Read now: a call that was given up may end while the others are awaited.
                seconds[reward.name] = job.seconds
                if member_maps is not None:
                    maps[reward.name] = member_maps
                if job.error is None and all(event.name != "timeout" for event in new_events):
                    if isinstance(job.value, Parted):
                        fields[reward.name] = job.value.fields
                    log.add_to(logged, extras, reward.name, len(prompts))
        finally:
            # After an error the others' results are of no use.
            for reward, job, _, _ in running:
                if not job.done.is_set():
                    reward.abandon()
        return RewardTable(
            values,
            {reward.name: reward.weight for reward in used},
            tuple(events),
            seconds,
            frozenset(reward.name for reward in used if reward.judge),
            maps,
            fields,
            {reward.name: reward.bounds for reward in used},
            logged,
            extras,
            [Content.of(completion) for completion in completions],
        )

    def memory(self) -> dict[str, Any]:
        """Returns the memories of rewards that follow training, by name, JSON-able; rewards without a memory are left
        out.
        """
        memories = {name: self._asked(name, "memory") for name in self._following}
        return {name: memory for name, memory in memories.items() if memory}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restores the memories of the rewards that are present; a reward without an entry is reset."""
        for name in self._following:
            self._asked(name, "recall", memory.get(name, {}))

    def follow(self, groups: Mapping[str, Groups]) -> dict[str, float]:
        """Updates the rewards' memories with a batch of rollouts of all processes.

        Args:
            groups: name of a reward -> one entry a group, field -> values of its members.

        Returns:
            their numbers for the metrics, as `rewards/NAME/...`.
        """
        metrics: dict[str, float] = {}
        for name in self._following:
            if not groups.get(name):
                continue
            said = self._asked(name, "follow", groups[name])
            if not isinstance(said, Mapping) or not all(isinstance(number, Real) for number in said.values()):
                raise RewardError(
                    f"reward {name!r}: follow returned {said!r}; return numbers by name, {{}} where there are none",
                    reward=name,
                )
            metrics |= {f"rewards/{name}/{key}": float(number) for key, number in said.items()}
        return metrics

    def _asked(self, name: str, method: str, *arguments: Any) -> Any:
        """Calls a method of a reward's memory; an error names the reward and the line of its code."""
        try:
            return getattr(self._rewards[name].function, method)(*arguments)
        except Exception as error:
            raise RewardError(f"reward {name!r}: {method} raised {why_failed(error)}", reward=name) from error

    def close(self) -> None:
        """Ends threads and processes; a thread that hangs is left until the program ends."""
        for reward in self._rewards.values():
            reward.abandon()
            getattr(reward.function, "close", lambda: None)()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def score(
    rewards: Rewards | Mapping[str, Reward | RewardFunction],
    prompts: Sequence[Text],
    completions: Sequence[Any],
    columns: Mapping[str, Sequence[Any]] | None = None,
    *,
    judges: bool = False,
) -> RewardTable:
    """Scores one batch; see `Rewards.score`. Rewards that are given by name are opened for this batch only.

    Args:
        rewards: opened rewards, or name -> reward as `Rewards` takes them.
        prompts, completions, columns, judges: as in `Rewards.score`.

    Returns:
        every reward by itself, with weights, seconds and events.

    Raises:
        RewardError: as in `Rewards.score`.

    Example:
        >>> from groupwise.reward import ExactAnswer
        >>> score({"exact": ExactAnswer()}, ["2 + 2"] * 2, ["4", "5"], {"answer": [4, 4]}).values
        {'exact': [1.0, 0.0]}
    """
    if isinstance(rewards, Rewards):
        return rewards.score(prompts, completions, columns, judges=judges)
    with Rewards(rewards) as opened:
        return opened.score(prompts, completions, columns, judges=judges)


def as_judge(reward: Reward | RewardFunction) -> Reward | RewardFunction:
    """Returns the same reward as a judge: scored only where judges are requested, and excluded from every sum.

    A claim that training helped is worth something when a number that was not the reward went up.

    Example:
        >>> from groupwise.reward import Length, score
        >>> rewards = {
        ...     "brief": Length(target=1),
        ...     "likes a": as_judge(lambda completions: [float("a" in text) for text in completions]),
        ... }
        >>> score(rewards, ["?"], ["a"]).values
        {'brief': [1.0]}
        >>> table = score(rewards, ["?"], ["a"], judges=True)
        >>> table.values["likes a"], table.weights, table.total()
        ([1.0], {'brief': 1.0, 'likes a': 0.0}, [1.0])
    """
    if isinstance(reward, Reward):
        return reward.model_copy(update={"role": "judge"})
    inner = reward if isinstance(reward, functools.partial) else functools.partial(reward)
    # One partial: what is bound in an inner one would be taken for a parameter that a column fills.
    judge: Any = functools.partial(inner.func, *inner.args, **inner.keywords)
    names = ("timeout_seconds", "on_error", "needs", "completions", "bounds")
    vars(judge).update({name: getattr(reward, name) for name in names if hasattr(reward, name)}, role="judge")
    return judge
