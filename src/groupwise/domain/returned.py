"""Checks of every value that a domain's methods return: its type, and shapes, dtypes, lengths and devices; and one line
for a method that raises.
"""

import inspect
import json
import math
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor

from groupwise.checkpoint.atomic import StorageError
from groupwise.config import ConfigError, why_failed
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Evaluation, Prompt, Samples, Table
from groupwise.plugins import is_shipped
from groupwise.processes import is_out_of_memory
from groupwise.records import Rollouts, Scored
from groupwise.reward import RewardError, RewardTable
from groupwise.reward.image import is_picture
from groupwise.streams import Streams

GUIDE = "docs/guide/write_your_own_domain.md"

_NUM_SHOWN = 16

T = TypeVar("T")


class Fault(ValueError):
    """A domain's method returned something that training cannot use, or raised; the sentence begins with its name."""

    def of(self, domain: Domain) -> ConfigError:
        """Returns the error for people, which names the domain's class and the guide."""
        return ConfigError(f"domain: {type(domain).__name__}.{self} ({GUIDE})")


def check_returns(domain: Domain) -> Domain:
    """Checks at every call what a user's domain returns to a step. A domain of this package is not checked: its tests
    do that.

    Args:
        domain: any; its methods are replaced on this object alone.

    Returns:
        the same object.
    """
    if is_shipped(type(domain).__module__) or "sample" in vars(domain):
        return domain
    plain: Any = {
        name: getattr(domain, name)
        for name in ("prompts", "sample", "reward", "score", "backward", "demonstrations", "noised", "with_reference")
        if hasattr(domain, name)
    }

    def sample(prompts: Sequence[Prompt], group_size: int, **settings: Any) -> Samples:
        return checked_samples(plain["sample"](prompts, group_size, **settings), len(prompts), group_size, domain)

    # Only the mask's shape is read, so an expanded mask will do. The members' own would be copied in every pass.
    def score(samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        scored = plain["score"](samples, rows, requires)
        check_scored("score", scored, samples.mask[:1].expand(len(rows), -1), requires)
        return scored

    def backward(samples: Samples, rows: Tensor, cotangents: Scored) -> Scored:
        scored = plain["backward"](samples, rows, cotangents)
        check_scored("backward", scored, samples.mask[:1].expand(len(rows), -1))
        return scored

    checking = {
        "prompts": lambda indices: checked_prompts(plain["prompts"](indices), len(indices)),
        "sample": sample,
        "reward": lambda samples: checked_rewards(plain["reward"](samples), len(samples)),
        "score": score,
        "backward": backward,
        "demonstrations": lambda size, **keys: checked_demonstrations(plain["demonstrations"](size, **keys)),
        "noised": lambda samples, *rest, **keys: checked_members(
            "noised", plain["noised"](samples, *rest, **keys), samples
        ),
        "with_reference": lambda samples: checked_members("with_reference", plain["with_reference"](samples), samples),
    }
    vars(domain).update({name: checking[name] for name in plain})
    return domain


def checked_prompts(prompts: Any, count: int) -> list[Prompt]:
    """Returns what `prompts` returned, checked.

    Args:
        count: places that it was asked for.

    Raises:
        Fault: it is not a list of that many prompts.

    Example:
        >>> checked_prompts(["2 + 2 ="], 1)
        Traceback (most recent call last):
        groupwise.domain.returned.Fault: prompts: it returned a list of str; return a list of groupwise.domain.protocol.Prompt, one an index
    """  # noqa: E501
    _require_all("prompts", prompts, Prompt, "a list of groupwise.domain.protocol.Prompt, one an index")
    if len(prompts) != count:
        raise Fault(f"prompts: it returned {len(prompts)} for {count} indices; return one an index")
    return list(prompts)


def checked_prompt(method: str, prompt: Any) -> Prompt:
    """Returns the one prompt that a method made, checked.

    Args:
        method: the name of the method that was called.

    Raises:
        Fault: it is not a prompt.
    """
    return _required(method, prompt, Prompt, "one groupwise.domain.protocol.Prompt")


def checked_samples(samples: Any, num_prompts: int, group_size: int, domain: Domain) -> Samples:
    """Returns what `sample` returned, checked: whole groups in the order of the prompts, on one device.

    Args:
        num_prompts: the number of prompts that it was asked for.
        group_size: members of each.
        domain: the domain whose log-probs are of densities or not, and are known when it has sampled or not
            (`samples_remotely`).

    Raises:
        Fault: they are other members, or records of another shape.
    """
    _required("sample", samples, Samples, "groupwise.domain.protocol.Samples")
    _check_groups(samples, num_prompts, group_size)
    if not domain.samples_remotely:
        try:
            Rollouts(
                samples.group,
                samples.mask,
                samples.old_log_prob,
                truncated=samples.truncated,
                density=domain.density,
                **samples.decision_fields(),
            )
        except ValueError as error:
            raise Fault(f"sample: {str(error).replace('Rollouts.', '')}") from error
    _check_payload("sample", samples)
    if samples.recorded is not None:
        check_scored("sample: recorded", samples.recorded, samples.mask)
    return samples


def checked_members(method: str, samples: Any, before: Samples) -> Samples:
    """Returns what a method made of members that it was given (`noised`, `with_reference`), checked.

    Args:
        method: the name of the method that was called.
        before: what it was given.

    Raises:
        Fault: they are not samples, or other members.
    """
    _required(method, samples, Samples, "groupwise.domain.protocol.Samples")
    if len(samples) != len(before):
        raise Fault(f"{method}: {len(samples)} members for the {len(before)} that it was given; return all of them")
    _check_payload(method, samples)
    return samples


def checked_demonstrations(samples: Any) -> Samples:
    """Returns what `demonstrations` returned, checked.

    Raises:
        Fault: there is none, or one without its `auxiliary_count`.
    """
    _required("demonstrations", samples, Samples, "groupwise.domain.protocol.Samples")
    counts = samples.auxiliary_count.get("supervised")
    if not isinstance(counts, Tensor) or counts.shape != (len(samples),):
        raise Fault(
            f"demonstrations: auxiliary_count['supervised'] is {described(counts)}; give a tensor [B] with B ="
            f" {len(samples)}, what each member's loss is divided by"
        )
    _check_payload("demonstrations", samples)
    return samples


def check_scored(place: str, scored: Any, mask: Tensor, requires: Collection[str] = frozenset({"log_prob"})) -> None:
    """Refuses a result that is not a `Scored`, lacks a field, or has fields of another shape, dtype or device than the
    mask.

    Args:
        place: the method, and where in what it returned.
        mask: `[N, T]`, of the members that were scored.
        requires: names of the fields that it was asked for.

    Raises:
        Fault: names the field.

    Example:
        >>> check_scored("score", Scored(torch.zeros(2, 1)), torch.ones(2, 3, dtype=torch.bool))
        Traceback (most recent call last):
        groupwise.domain.returned.Fault: score: log_prob has the shape [2, 1]; it must be [N, T] as mask, [2, 3]
    """
    if not isinstance(scored, Scored):
        raise Fault(f"{place}: it is {described(scored)}; it must be groupwise.records.Scored(log_prob)")
    fields = scored.tensors()
    if missing := sorted(set(requires) - set(fields)):
        raise Fault(f"{place}: it has no {missing[0]}, which the method was asked for (requires); return this field")
    for name, value in fields.items():
        if not isinstance(value, Tensor):
            raise Fault(f"{place}: {name} is {described(value)}; it must be a tensor")
        expected = mask.shape[:1] if name.startswith("auxiliary.") else mask.shape
        if value.shape != expected:
            axes = "[N]" if name.startswith("auxiliary.") else "[N, T] as mask"
            raise Fault(f"{place}: {name} has the shape {list(value.shape)}; it must be {axes}, {list(expected)}")
        if not value.is_floating_point():
            raise Fault(f"{place}: {name} is {_dtype(value)}; it must be of a floating-point dtype, such as float32")
    _check_devices(place, fields, mask.device)


def checked_rewards(table: Any, num_members: int) -> RewardTable:
    """Returns what `reward` returned, checked: a finite number or None a member.

    Args:
        num_members: the number of members that it was given.

    Raises:
        Fault: it is not a table of that many numbers.

    Example:
        >>> checked_rewards(RewardTable({"right": [1.0]}), 2)
        Traceback (most recent call last):
        groupwise.domain.returned.Fault: reward: 'right' has 1 values for 2 members
    """
    _required("reward", table, RewardTable, "groupwise.reward.RewardTable({NAME: numbers})")
    if not table.values:
        raise Fault("reward: the table has no reward, so members cannot be compared; give at least one")
    for name, values in table.values.items():
        if len(values) != num_members:
            raise Fault(f"reward: {name!r} has {len(values)} values for {num_members} members")
        for value in values:
            if value is not None and not isinstance(value, int | float):
                raise Fault(
                    f"reward: {name!r} has {described(value)} in it; give numbers, and None where one is missing"
                )
            if value is not None and not math.isfinite(value):
                raise Fault(f"reward: {name!r} has the value {value}, not a finite one; give None where one is missing")
    return table


def checked_records(records: Any, count: int) -> list[dict[str, Any]]:
    """Returns what `describe` returned, checked: JSON apart from images.

    Args:
        count: rows that it was given.

    Raises:
        Fault: it is not a list of that many records, or one cannot be written.
    """
    _require_all("describe", records, dict, "a list of dicts, one a row")
    if len(records) != count:
        raise Fault(f"describe: it returned {len(records)} records for {count} rows; return one a row")
    for record in records:
        _check_record("describe", record)
    return list(records)


def checked_tables(tables: Any) -> Sequence[Table]:
    """Returns what `tables` returned, checked.

    Raises:
        Fault: it is not a list of tables.

    Example:
        >>> checked_tables(["lead"])
        Traceback (most recent call last):
        groupwise.domain.returned.Fault: tables: it returned a list of str; return a list of groupwise.domain.protocol.Table
    """  # noqa: E501
    _require_all("tables", tables, Table, "a list of groupwise.domain.protocol.Table")
    return tables


def checked_evaluation(evaluation: Any) -> Evaluation:
    """Returns what `evaluate` returned, checked.

    Raises:
        Fault: it is not an evaluation, a metric is not a number, or a record is not JSON.

    Example:
        >>> checked_evaluation({"accuracy": 1.0})
        Traceback (most recent call last):
        groupwise.domain.returned.Fault: evaluate: it returned a dict; return groupwise.domain.protocol.Evaluation(metrics)
    """  # noqa: E501
    _required("evaluate", evaluation, Evaluation, "groupwise.domain.protocol.Evaluation(metrics)")
    if not isinstance(evaluation.metrics, Mapping):
        raise Fault(f"evaluate: metrics is {described(evaluation.metrics)}; it must be a dict by name")
    for name, value in evaluation.metrics.items():
        if not isinstance(value, int | float):
            raise Fault(f"evaluate: the metric {name!r} is {described(value)}; give a float")
    if not isinstance(evaluation.records, list | tuple):
        raise Fault(f"evaluate: records is {described(evaluation.records)}; give a list of dicts, one a sample")
    for record in evaluation.records:
        _check_record("evaluate: records", record)
    if not isinstance(evaluation.pictures, Mapping):
        raise Fault(f"evaluate: pictures is {described(evaluation.pictures)}; it must be a dict of images by name")
    for name, picture in evaluation.pictures.items():
        if not isinstance(picture, Tensor) or not is_picture(picture):
            shown = (
                f"a tensor {_dtype(picture)} {list(picture.shape)}"
                if isinstance(picture, Tensor)
                else described(picture)
            )
            raise Fault(f"evaluate: pictures[{name!r}] is {shown}; give a tensor uint8 [H, W] or [H, W, 3]")
    return evaluation


def _required(place: str, value: Any, kind: type[T], wanted: str) -> T:
    """Returns the value if it is an instance of the class, and raises a `Fault` if not."""
    if not isinstance(value, kind):
        raise Fault(f"{place}: it returned {described(value)}; return {wanted}")
    return value


def _require_all(place: str, values: Any, kind: type[Any], wanted: str) -> None:
    """Refuses anything but a list of values of one class."""
    if not isinstance(values, list | tuple) or not all(isinstance(value, kind) for value in values):
        raise Fault(f"{place}: it returned {described(values)}; return {wanted}")


def _check_groups(samples: Samples, num_prompts: int, group_size: int) -> None:
    """Refuses members that are not whole groups in the order of the prompts, on one device."""
    members = num_prompts * group_size
    for name in ("mask", "group", "old_log_prob"):
        if not isinstance(getattr(samples, name), Tensor):
            raise Fault(f"sample: {name} is {described(getattr(samples, name))}; it must be a tensor")
    if samples.mask.dim() != 2:
        raise Fault(f"sample: mask has the shape {list(samples.mask.shape)}; it must be [B, T] = [{members}, T]")
    if len(samples) != members:
        raise Fault(
            f"sample: {len(samples)} members for {num_prompts} prompts of {group_size}; return {members}, one row of"
            " mask each"
        )
    # The loss combines these tensors, so they must be on one device.
    single = {"group": samples.group, "old_log_prob": samples.old_log_prob, "truncated": samples.truncated}
    _check_devices("sample", {**single, **samples.decision_fields()}, samples.mask.device)
    expected = torch.arange(num_prompts).repeat_interleave(group_size)
    if (group := samples.group.flatten().tolist()) != expected.tolist() or samples.group.dim() != 1:
        first = next((place for place, pair in enumerate(zip(group, expected.tolist())) if pair[0] != pair[1]), 0)
        raise Fault(
            f"sample: group is {_near(group, first)} of the shape {list(samples.group.shape)}; the members of a prompt"
            f" stand one after another: {_near(expected.tolist(), first)} of the shape [{members}]"
        )
    if len(samples.prompts) != num_prompts:
        raise Fault(
            f"sample: prompts has {len(samples.prompts)} entries; hand over the {num_prompts} that it was given"
        )


def _near(values: Sequence[Any], place: int) -> str:
    """Writes a list; of a long one, only the entries around a place."""
    first = 0 if len(values) <= _NUM_SHOWN else max(0, place - _NUM_SHOWN // 2)
    shown = values[first : first + _NUM_SHOWN]
    return f"[{'..., ' * (first > 0)}{', '.join(map(str, shown))}{', ...' * (first + len(shown) < len(values))}]"


def _check_record(place: str, record: Any) -> None:
    """Refuses a record that cannot be written as a line of JSON, its images left out."""
    if not isinstance(record, Mapping):
        raise Fault(f"{place}: an entry is {described(record)}; it must be a dict")
    for name, value in record.items():
        if not isinstance(name, str):
            raise Fault(f"{place}: the name {name!r} is no text; write {str(name)!r}")
        if isinstance(value, Tensor) and not is_picture(value):
            raise Fault(
                f"{place}: {name!r} is a tensor {_dtype(value)} {list(value.shape)}; only images may be tensors, uint8"
                " [H, W] or [H, W, 3], so write value.tolist()"
            )
        try:
            json.dumps(None if isinstance(value, Tensor) else value)
        except (TypeError, ValueError) as error:
            raise Fault(f"{place}: {name!r} is no JSON ({error}); only images may be tensors") from error


def _check_devices(place: str, tensors: Mapping[str, Any], device: torch.device) -> None:
    for name, value in tensors.items():
        if isinstance(value, Tensor) and value.device != device:
            raise Fault(f"{place}: {name} is on {value.device} and mask on {device}; give all tensors on one device")


def _check_payload(place: str, samples: Samples) -> None:
    """Refuses a payload whose entries do not have one row a member."""
    for name in ("payload", "numbers"):
        if not isinstance(getattr(samples, name), Mapping):
            raise Fault(f"{place}: {name} is {described(getattr(samples, name))}; it must be a dict by name")
    for name, rows in samples.payload.items():
        is_scalar = isinstance(rows, Tensor) and rows.dim() == 0
        if is_scalar or not isinstance(rows, Tensor | list | tuple) or len(rows) != len(samples):
            raise Fault(f"{place}: payload[{name!r}] is {described(rows)} and no tensor or list of {len(samples)} rows")


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def described(value: Any) -> str:
    """Describes a value of the wrong type in a few words.

    Example:
        >>> described(["a"]), described(None), described({})
        ('a list of str', 'None', 'a dict')
    """
    if isinstance(value, list | tuple) and value:
        return f"a {type(value).__name__} of {type(value[0]).__name__}"
    return "None" if value is None else f"a {type(value).__name__}"


# The first batch of a domain: what its methods return is checked before anything relies on it.

_NUM_PROMPTS = 2
_GROUP_SIZE = 2
_NATS = {torch.float64: 0.01, torch.float32: 0.01}
_HALF_NATS = 0.1
_RELATIVE = 1e-3


def check_first_batch(domain: Domain, streams: Streams) -> None:
    """Refuses a domain whose methods do not return what training relies on: one small batch is sampled, scored,
    rewarded and described, and nothing of it is trained on.

    `score` may differ by .01 nats from what was recorded (.1 in half precision), or by a thousandth of it. The laws
    that need more than one batch are those of `groupwise.testing.check_domain`.

    Args:
        domain: an open domain, with its weights.
        streams: the random streams of the run.

    Raises:
        ConfigError: names the class, the method and what it has to return.
    """
    domain.learner.eval()
    with naming_failed_method(domain):
        num_prompts = min(_NUM_PROMPTS, domain.num_prompts)
        prompts = checked_prompts(domain.prompts(range(num_prompts)), num_prompts)
        samples = first_samples(domain, prompts, _GROUP_SIZE, streams=streams)
        if "log_prob" in domain.supplies:
            check_recorded(domain, samples, _NATS.get(samples.old_log_prob.dtype, _HALF_NATS), relative=_RELATIVE)
        checked_rewards(domain.reward(samples), len(samples))
        checked_records(domain.describe(samples, torch.arange(len(samples), device=samples.mask.device)), len(samples))


def first_samples(
    domain: Domain,
    prompts: Sequence[Prompt],
    group_size: int,
    *,
    streams: Streams,
    requires: frozenset[str] = frozenset({"log_prob"}),
) -> Samples:
    """Draws one group of every prompt as step 0 without gradient, and returns the members, checked.

    Args:
        prompts: `P` prompts.
        group_size: members of each.
        streams: their generators draw everything.
        requires: names of the fields that are read.

    Raises:
        Fault: it returns other members, or records of another shape.
    """
    with torch.no_grad():
        samples = domain.sample(prompts, group_size, streams=streams, step=0, settings={}, requires=requires)
    samples = checked_samples(samples, len(prompts), group_size, domain)
    if not samples.mask.any(1).all():
        raise Fault("sample: a member has no decision (its row of mask is all false)")
    return samples


def check_recorded(domain: Domain, samples: Samples, tolerance: float, *, relative: float = 0.0) -> None:
    """Refuses recorded log-probs that differ from those of `score` under the same weights.

    Args:
        samples: the samples as `first_samples` returned them.
        tolerance: nats by which two computations of one log-prob may differ.
        relative: share of the log-prob's size by which they may differ beside that.

    Raises:
        Fault: `score` returns other numbers, or another shape.
    """
    rows = torch.arange(len(samples), device=samples.mask.device)
    with torch.no_grad():
        scored = domain.score(samples, rows, frozenset({"log_prob"}))
    check_scored("score", scored, samples.mask)

    def gap(log_prob: Tensor) -> Tensor:
        return (log_prob - samples.old_log_prob)[samples.mask].abs()

    bound = (tolerance + relative * samples.old_log_prob.abs())[samples.mask]
    # A number that is not finite is never within the bound.
    if not (gap(scored.log_prob) <= bound).all():
        raise Fault(
            f"score: at unchanged weights it differs from what sample recorded by up to"
            f" {float(gap(scored.log_prob).max()):.3g} nats; score the recorded decisions, not new ones"
        )
    if samples.recorded is not None and not (gap(samples.recorded.log_prob) <= bound).all():
        raise Fault("sample: recorded.log_prob is not old_log_prob")


def check_metric(domain: Domain, metric: str | None, reported: Sequence[str]) -> None:
    """Refuses a domain whose evaluation does not report the metric that a run is judged by.

    Args:
        domain: names the class in the error.
        metric: `train.metric`; None is satisfied by any.
        reported: names of the metrics of an evaluation.

    Raises:
        ConfigError: the metric is not among them; it names those that are.
    """
    if metric is None or metric in reported:
        return
    instead = f" or write train.metric = {json.dumps(reported[0])}" if reported else ""
    raise Fault(
        f"evaluate: it did not report train.metric = {json.dumps(metric)}, though metric_names lists it; it reported"
        f" {', '.join(reported) or 'nothing'}; report {metric} in every evaluation{instead}"
    ).of(domain)


# A method of a user's domain raised: the error is one line that names the class, the method and the line of its code.


@contextmanager
def naming_failed_method(domain: Domain) -> Iterator[None]:
    """If the block fails in a method of a user's domain, or of its learner, raises an error that names the method; the
    original error is its cause.

    The named method is the first of theirs that the error's traceback enters, whoever called it. Other errors are not
    changed: those below methods of this package, those that name their remedy, and lack of memory.

    Args:
        domain: the domain whose methods the block may call.

    Raises:
        ConfigError: a method raised, or returned what cannot be used (`Fault`).

    Example:
        >>> class Mine:
        ...     def evaluate(self):
        ...         return {}["score"]
        >>> Mine.__module__, mine = "mine", Mine()
        >>> with naming_failed_method(mine):
        ...     mine.evaluate()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: domain: Mine.evaluate raised KeyError: 'score'...
    """
    try:
        yield
    except (ConfigError, RewardError, StorageError):
        raise
    except Fault as fault:
        raise fault.of(domain) from fault
    # A user's code may fail in any way.
    except Exception as error:
        if is_out_of_memory(error):
            raise
        for owner in (domain, vars(domain).get("learner")):
            method = _method_entered(owner, error.__traceback__)
            if method is not None:
                called = f"domain: {type(owner).__name__}.{method} raised {why_failed(error)}{_own_line(owner, error)}"
                raise ConfigError(called) from error
        raise


def _method_entered(owner: Any, entered: TracebackType | None) -> str | None:
    """Returns the name of the first public method of an object on a traceback, apart from methods of this package."""
    while entered is not None:
        frame = entered.tb_frame
        code, first = frame.f_code, frame.f_code.co_varnames[:1]
        is_own = bool(first) and frame.f_locals.get(first[0]) is owner and not code.co_name.startswith("_")
        homes = (cls.__module__ for cls in type(owner).__mro__ if code.co_name in vars(cls))
        if is_own and not is_shipped(next(homes, __name__)):
            return code.co_name
        entered = entered.tb_next
    return None


def _own_line(owner: Any, error: Exception) -> str:
    """Returns the last line of the class's own file that ran, if the error was raised below it in a library."""
    try:
        own = Path(inspect.getfile(type(owner)))
    except (OSError, TypeError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if Path(frame.filename) == own]
    return f", called at {own.name}:{lines[-1].lineno}" if lines and lines[-1] is not frames[-1] else ""
