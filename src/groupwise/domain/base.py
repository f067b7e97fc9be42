"""The base class of every domain: a stochastic policy with its prompts, its rewards and its evaluation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from torch import Tensor, nn

from groupwise.config import Config, ConfigError
from groupwise.domain.protocol import Evaluation, Peers, Prompt, Samples
from groupwise.learner.local import LocalLearner
from groupwise.learner.protocol import Learner
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.streams import Streams
from groupwise.transfer import moved


class NoSettings(Config):
    """The settings of a domain that has none."""


class Domain(ABC):
    """A stochastic policy with its data, which training, evaluation and every verb call.

    A subclass states `unit` and `density`, sets `module` (or `learner`) and `num_prompts` in its constructor, and
    writes the five abstract methods. The others have defaults, which their docstrings state.
    `groupwise.testing.check_domain` tries a domain against the laws that training relies on.

    Attributes:
        unit: unit of a log-prob, for people, for example `"nats per action"`.
        density: whether log-probs are of densities (continuous actions), which may be above 0; otherwise of discrete
            choices.
        module: the policy's weights; its trainable parameters are what the optimiser steps.
        learner: the one owner of weights and optimiser, which is all that training asks for; by default a local one of
            `module`. Set it in place of `module` where the weights live elsewhere (`groupwise.learner.protocol`).
        supplies: names of the `Scored` fields that `score` can give, `step_size` among them where samples carry it.
        auxiliary: names of the auxiliary terms among them.
        num_prompts: size of the training set; an attribute or a property, like the two below.
        takes_text: whether a text alone makes a prompt; otherwise it does where prompts have the one column `prompt`.
        remarks: sentences for people on the data, such as rows left out and prompts cut; printed when a run starts.
        clip_remark: a sentence on the unit of the log-probs; printed when a run reads them.
        clip_shift: the shift, in standard deviations, that a clip of 1 holds in that unit; printed with the run's own
            bounds, 0 where it means nothing.
        demonstrates_prompts: whether demonstrations are the training set itself, so that a stage that samples nothing
            has epochs.
        metric_names: every metric that `evaluate` may report, known before anything is computed; `train.metric` must be
            one of them.
        trained_on: one text for each different prompt that is trained on, those of demonstrations included; not its
            key, which may count repeats.
        evaluated_on: such texts of the prompts that `evaluate` asks. Where the two sets meet, a result is not called
            held-out.
        draws_in_shards: whether `sample` and a shared evaluation draw with sharded weights as they are, every process
            with as many passes as the others; otherwise whole weights are gathered before them.
        samples_remotely: whether `sample` and a shared evaluation ask a server. A sharded model's whole weights are
            then gathered on the CPU and sent from there; members come without log-probs of the trainer (NaN), and the
            step scores them in shards.
        sends_weights: whether this process sends the weights to the server; one that does not holds shards alone.
        samples_recorded: whether `sample` gives members that another policy drew, so that the first update on them is
            off-policy as the later ones are.
        keeps_graph: whether `sample` may keep the graph of its passes for the first update; otherwise the step calls it
            without gradient.
        memory_remedy: what to write where memory runs out, with the domain's own keys.
        Settings: the class of the settings, validated like ours; the constructor is called `Class(settings,
            streams=..., device=...)`.

    Example:
        >>> sorted(Domain.__abstractmethods__)
        ['evaluate', 'prompts', 'reward', 'sample', 'score']
    """

    unit: str
    density: bool
    module: nn.Module
    supplies: frozenset[str] = frozenset({"log_prob"})
    auxiliary: frozenset[str] = frozenset()
    num_prompts: int
    takes_text: bool = False
    remarks: Sequence[str] = ()
    clip_remark: str = ""
    clip_shift: float = 0.0
    demonstrates_prompts: bool = False
    metric_names: Sequence[str] = ()
    trained_on: frozenset[str] = frozenset()
    evaluated_on: frozenset[str] = frozenset()
    draws_in_shards: bool = False
    samples_remotely: bool = False
    sends_weights: bool = True
    samples_recorded: bool = False
    keeps_graph: bool = False
    memory_remedy: ClassVar[str] = (
        "train.gradient_checkpointing = true, train.autocast = bfloat16, a smaller train.prompts_per_step or"
        " train.group_size, or a smaller model"
    )
    Settings: ClassVar[type[Config]] = NoSettings

    @cached_property
    def learner(self) -> Learner:
        """The one owner of weights and optimiser."""
        return LocalLearner(self.module)

    @abstractmethod
    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        """Returns training prompts by their place in the training set.

        Args:
            indices: places, from 0 to `num_prompts - 1`.
        """

    @abstractmethod
    def sample(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        *,
        streams: Streams,
        step: int,
        settings: Mapping[str, float],
        requires: frozenset[str],
    ) -> Samples:
        """Samples a group of `group_size` members for each prompt, without gradient.

        Whatever is drawn comes from `streams.generator(name, step, prompt.key, member)`, so that a member depends on
        nothing but its own key.

        Args:
            group_size: members of each prompt.
            streams: the random streams of the run; its generators draw everything.
            step: the step of the run; part of the generators' keys.
            settings: sampling settings by name; they override the domain's own. `top_k = 1` asks for the policy's mode.
            requires: names of the fields that the objective reads; they may be recorded while sampling.

        Returns:
            `P * group_size` members, the members of a prompt one after another.
        """

    def send_weights(self, peers: Peers) -> None:  # noqa: B027
        """Sends the current weights to a server that draws for several processes; does nothing by default. Every
        process calls it before `sample` and before an evaluation.

        Args:
            peers: the processes of the run.
        """

    def check_scored(self, samples: Samples) -> None:  # noqa: B027
        """Compares the log-probs of a batch, once the step has computed them (`samples_remotely`), with those of the
        server that drew it; does nothing by default.

        Args:
            samples: the samples as `sample` gave them, with `old_log_prob`.
        """

    @abstractmethod
    def reward(self, samples: Samples) -> RewardTable:
        """Computes every reward of every member.

        Args:
            samples: the samples as `sample` gave them.
        """

    @abstractmethod
    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        """Scores the same decisions under the live policy, with gradient unless the caller switched it off.

        Args:
            samples: the samples as `sample` gave them.
            rows: `[N]`, the members to score; a negative one is a filler, whatever is returned for it.
            requires: names of the fields that the objective reads.

        Returns:
            fields `[N, T]` in nats.
        """

    @abstractmethod
    def evaluate(self, *, streams: Streams) -> Evaluation:
        """Evaluates the live policy on prompts that are not trained on.

        Args:
            streams: the random streams of the run; its generators draw everything.
        """

    def adapted(self, settings: Any) -> "Domain":
        """Opens the same module under other settings, for a stage that changes them. By default no stage may.

        Raises:
            ConfigError: a setting differs that belongs to the whole run.
        """
        raise ConfigError(
            f"domain: {type(self).__name__} takes no other settings in a stage; set them outside, or write its method"
            " adapted(settings)"
        )

    def backward(self, samples: Samples, rows: Tensor, cotangents: Scored) -> Scored:
        """Accumulates the gradient of `sum(cotangent * field)` where the weights are; by default through `score` and
        autograd.

        Args:
            samples: the samples as `sample` gave them.
            rows: `[N]`, the members to score.
            cotangents: the loss's derivative by each field, `[N, T]`.

        Returns:
            the fields, detached.

        Raises:
            ConfigError: `score` returned no field with a gradient.
        """
        field_cotangents = cotangents.tensors()
        scored = self.score(
            samples, rows, frozenset(name for name in field_cotangents if not name.startswith("auxiliary."))
        )
        require_gradient(self, scored)
        fields = scored.tensors()
        total = sum(
            (cotangent * fields[name]).sum()
            for name, cotangent in field_cotangents.items()
            if fields[name].requires_grad
        )
        if isinstance(total, Tensor):
            total.backward()
        return scored.detach()

    def demonstrations(self, size: int, *, streams: Streams, step: int) -> Samples | None:
        """Draws supervised members, whose `score` returns `auxiliary["supervised"]`: mask all false,
        `auxiliary_count["supervised"]` set. None by default.

        Args:
            size: number of members, at most.
            streams: the random streams of the run; its generators draw everything.
            step: the step of the run; part of the generators' keys.

        Returns:
            the members; `None` of a domain without a corpus.
        """
        return None

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        """Describes members for people: JSON-able records for `rollouts/`; an image in one is a `uint8` tensor `[H, W]`
        or `[H, W, 3]`. By default a record has the prompt's columns, and the member's payload as far as it is text or
        at most 64 numbers; if there is no such payload, the number of its decisions.

        Args:
            samples: the samples as `sample` gave them.
            rows: `[N]`, the members to describe.
        """
        short = {
            name: value
            for name, value in samples.payload.items()
            if not isinstance(value, Tensor) or value[:1].numel() <= _MOST_NUMBERS
        }
        samples = moved(replace(samples, recorded=None, payload=short).select(rows))
        prompts = [samples.prompts[group] for group in samples.group.tolist()]
        return [
            {
                **(_short_entries(samples.payload, row) or {"decisions": int(samples.mask[row].sum())}),
                "prompt": prompt.key,
                "key": prompt.key,
                **prompt.columns,
            }
            for row, prompt in enumerate(prompts)
        ]

    def asked(self, text: str) -> Prompt:
        """Makes a prompt from a text that a person typed: the training prompt with this text or key, or a new prompt,
        where a text alone makes a prompt (`takes_text`).

        Args:
            text: as it was typed.

        Raises:
            ConfigError: there is no such prompt, and a text does not make one.
        """
        prompts = self.prompts(range(self.num_prompts))
        for prompt in prompts:
            if text in (prompt.columns.get("prompt"), prompt.key):
                return prompt
        if self.takes_text or not prompts or set(prompts[0].columns) == {"prompt"}:
            return Prompt(text, {"prompt": text})
        raise ConfigError(
            f"--prompt {text!r}: a prompt of {type(self).__name__} is no text alone, it has"
            f" {', '.join(prompts[0].columns) or 'no column'}; write the key of a training prompt, for example"
            f" {prompts[0].key!r}, or the method asked(text) in the class"
        )

    def conversation(self, turns: Sequence[str]) -> Prompt:
        """Makes a prompt of a conversation, which the policy continues with; refused by default.

        Args:
            turns: what a person and the policy wrote in alternation; the last one is the person's.

        Raises:
            ConfigError: the domain holds no conversations.
        """
        raise ConfigError("--chat: this model holds no conversations; write --prompt TEXT")

    @property
    def vocabulary(self) -> str:
        """A hash of the meaning of the numbers that the policy reads and writes, such as the words of a tokenizer. A
        run refuses to start from weights with another vocabulary. Empty where the numbers need no hash.
        """
        return ""

    def save(self, folder: Path) -> None:
        """Writes the policy; by default its weights, as `model.safetensors`.

        Args:
            folder: exists and is empty.
        """
        self.learner.save(folder)

    def load(self, folder: Path) -> None:
        """Loads what `save` wrote into the weights.

        Args:
            folder: the folder that `save` wrote.

        Raises:
            ConfigError: there are no such weights, or of another shape.
        """
        try:
            self.learner.load(folder)
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"domain.weights = {str(folder)!r}: its weights are not those of {type(self).__name__}: {error}"
            ) from None

    def close(self) -> None:
        """Ends everything that runs for the domain, such as threads and processes of rewards, or of a learner that the
        domain set; by default the learner.
        """
        if "learner" in vars(self):
            self.learner.close()

    @classmethod
    def open(cls, settings: Config, *, streams: Streams, device: str = "cpu") -> Self:
        """Opens the domain and checks what every subclass states.

        Args:
            settings: the settings of the class `Settings`.
            streams: the random streams of the run; fresh weights are drawn from it.
            device: where the module lives.

        Raises:
            ConfigError: a member is missing or of another type, or the constructor refuses the settings.
        """
        constructor: Any = cls
        return constructor(settings, streams=streams, device=device).checked()

    def checked(self) -> Self:
        """Returns the domain itself, checked for what every subclass states.

        Raises:
            ConfigError: a member is missing or of another type.
        """
        domain, cls = self, type(self)
        member_types: dict[str, type] = {
            "unit": str,
            "density": bool,
            "module": nn.Module,
            "num_prompts": int,
            "supplies": frozenset,
            "auxiliary": frozenset,
        }
        if (learner := vars(domain).get("learner")) is not None:
            del member_types["module"]
            _check_learner(cls, learner)
        for name, kind in member_types.items():
            value = getattr(domain, name, None)
            if not isinstance(value, kind):
                problem = "is not set" if value is None else f"is {type(value).__name__}"
                raise ConfigError(
                    f"domain: {cls.__name__}.{name} {problem}; it must be of type {kind.__name__}, see groupwise.Domain"
                )
        if domain.num_prompts < 1:
            raise ConfigError(f"domain: {cls.__name__}.num_prompts is {domain.num_prompts}; it must be at least 1")
        for name in ("metric_names", "remarks", "trained_on", "evaluated_on"):
            entries = getattr(domain, name)
            if isinstance(entries, str):
                raise ConfigError(
                    f"domain: {cls.__name__}.{name} is one text, whose letters would be taken for entries; write a"
                    f" tuple: {name} = ({entries!r},)"
                )
            if not isinstance(entries, Collection) or not all(isinstance(entry, str) for entry in entries):
                raise ConfigError(
                    f"domain: {cls.__name__}.{name} is {str(entries)[:60]}; it must be a collection of texts, see"
                    " groupwise.Domain"
                )
        return domain


def require_gradient(domain: Domain, scored: Scored) -> None:
    """Refuses scored fields if none of them depends on a parameter of the policy: nothing could be learned from
    them.

    Args:
        domain: the domain whose `score` returned the fields.
        scored: the fields.

    Raises:
        ConfigError: none of the fields has a gradient.
    """
    if not any(value.requires_grad for value in scored.tensors().values()):
        raise ConfigError(
            f"{type(domain).__name__}.score returned {', '.join(scored.tensors())} without a gradient, so that nothing"
            " can be learnt; compute them with the parameters of `module`, without torch.no_grad() and detach()"
        )


def _check_learner(domain_class: type[Domain], learner: Learner) -> None:
    """Refuses a learner that lacks a member of the protocol."""
    if isinstance(learner, type):
        raise ConfigError(
            f"domain: {domain_class.__name__}.learner is the class {learner.__name__}; make an object of it"
        )
    members = [name for name in vars(Learner) if not name.startswith("_")]
    missing = sorted(name for name in members if not hasattr(learner, name))
    if missing:
        raise ConfigError(
            f"domain: {domain_class.__name__}.learner is {type(learner).__name__} and lacks {', '.join(missing)}; see"
            " groupwise.learner.protocol.Learner"
        )


_MOST_NUMBERS = 64


def _short_entries(payload: Mapping[str, Any], row: int) -> dict[str, Any]:
    """Returns the short entries of one member in a payload: texts, numbers, and tensors of few numbers."""
    entries: dict[str, Any] = {}
    for name, rows in payload.items():
        value = rows[row]
        if isinstance(value, Tensor):
            entries[name] = value.tolist()
        elif isinstance(value, str | int | float):
            entries[name] = value
    return entries


# An evaluation that several processes share: each computes its part of a list.

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_shares(
    items: Sequence[_Item],
    peers: Peers | None,
    compute: Callable[[Sequence[_Item]], _Result],
    idle: Callable[[], object] = lambda: None,
) -> list[_Result]:
    """Computes a result for each process's share of a list, and returns all of them on every process, in the list's
    order.

    Args:
        items: the whole list, the same on all processes, at least one item.
        peers: the processes, each of which must call this function; None for this process alone.
        compute: makes the result of some consecutive items; results travel between processes and can be pickled.
        idle: is called in place of `compute` on a process without a share.

    Example:
        >>> in_shares([1, 2, 3], None, sum)
        [6]
    """
    if peers is None:
        return [compute(items)]
    share = peers.share(len(items))
    local = None
    if share:
        local = compute(items[share.start : share.stop])
    else:
        idle()
    return [result for result in peers.gather(local) if result is not None]
