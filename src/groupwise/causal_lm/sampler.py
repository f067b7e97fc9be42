"""Groups sampled from any causal LM, in this process: one prefill a prompt, members that leave the batch when they are
done, and log-probs that are kept; and the interface of every engine that samples groups.

Every member of the batch takes one token a step, so step t writes column t of every row. A member whose conversation
continues (its environment answered) stays in the batch and is fed the environment's tokens, one a step, in place of
sampled ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, final

import torch
from torch import Tensor

from groupwise.causal_lm.backbone import Backbone, base_of, quick_adapters
from groupwise.causal_lm.config import BuiltinEngine, SamplingConfig
from groupwise.causal_lm.decode import Stops, check_finite, draw, prefill, truncation_mask, uniforms
from groupwise.config import ConfigError
from groupwise.records import tensors_of

Continue = Callable[[int, list[int]], Sequence[int] | None]

# When members leave the batch, the cache of the others is copied. So finished members leave several at a time.
_LEAVE_SHARE = 1 / 8


@final
@dataclass(frozen=True)
class Completions:
    """The sampled completions. ``B = prompts x group size`` members in the order of the prompts; ``T`` the longest
    completion.

    Args:
        tokens: ``[B, T]`` long, 0 beyond a member's length.
        mask: ``[B, T]`` bool, true where the policy chose the token: false at an environment's tokens and beyond the
            length.
        length: ``[B]`` tokens of each member, the environment's included.
        log_prob: ``[B, T]`` nats under the full distribution at the sampling temperature; 0 where the mask is false.
        behaviour_log_prob: ``[B, T]`` nats under what top-p and top-k left; ``None`` when nothing was left out.
        entropy: ``[B, T]`` nats of the full distribution, when `requires` names it.
        score_norm: ``[B, T]``, when `requires` names it.
        truncated: ``[B]`` bool, true where a limit ended the member.
        weight_version: the version of the weights that sampled, counted by the engine where it sends them to a server.
        numbers: metrics of the engine, such as the seconds of a sync.
    """

    tokens: Tensor
    mask: Tensor
    length: Tensor
    log_prob: Tensor
    behaviour_log_prob: Tensor | None
    entropy: Tensor | None
    score_norm: Tensor | None
    truncated: Tensor
    weight_version: int | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)

    def token_lists(self) -> list[list[int]]:
        """Lists each member's tokens without padding."""
        return [row[:length] for row, length in zip(self.tokens.tolist(), self.length.tolist(), strict=True)]

    def cut(self) -> Completions:
        """Cuts the columns so that ``T`` is the longest member's length."""
        longest = int(self.length.max().item()) if len(self.length) else 0
        columns = {name: value for name, value in tensors_of(self).items() if value.ndim == 2}
        return replace(self, **{name: value[:, :longest] for name, value in columns.items()})

    @staticmethod
    def concatenate(parts: Sequence[Completions]) -> Completions:
        """Joins the members of all parts, padded to the longest."""
        longest = max(part.tokens.shape[1] for part in parts)
        columns = [tensors_of(part) for part in parts]
        joined = {
            name: torch.cat(
                [
                    torch.nn.functional.pad(c[name], (0, longest - c[name].shape[1])) if c[name].ndim == 2 else c[name]
                    for c in columns
                ]
            )
            for name in columns[0]
        }
        return replace(parts[0], **joined)


def end_ids(model: Any, tokenizer: Any = None) -> tuple[int, ...]:
    """Collects the ids that end a completion: those of the model's generation configuration and the tokenizer's.

    Raises:
        ConfigError: there is none.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> tokenizer = character_tokenizer("ab")
        >>> end_ids(small_model(SmallModelConfig(hidden_size=8, num_heads=2), tokenizer, seed=0), tokenizer)
        (1,)
    """
    inner = base_of(model)
    end_tokens: set[int] = set()
    for source in (getattr(inner, "generation_config", None), inner.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        ids = list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
        if any(not isinstance(token, int) or isinstance(token, bool) for token in ids):
            raise ConfigError(
                f"eos_token_id = {str(value)[:80]!r} in the model's folder: must be a number or a list of numbers; mend"
                " generation_config.json"
            )
        end_tokens |= set(ids)
    if not end_tokens:
        raise ConfigError(
            "neither the model's configuration nor the tokenizer names an end-of-sequence token; write eos_token into"
            " tokenizer_config.json"
        )
    return tuple(sorted(end_tokens))


def written_texts(tokenizer: Any, rows: Sequence[Sequence[int]], ends: Collection[int]) -> list[str]:
    """Decodes completions without unknown tokens and without tokens that end, begin or fill a text. Other special
    tokens, such as `<think>` of some tokenizers, are kept.

    Args:
        rows: token ids of each completion.
        ends: ids that end a completion.

    Example:
        >>> from groupwise.causal_lm.small import character_tokenizer
        >>> tokenizer = character_tokenizer("ab")
        >>> written_texts(tokenizer, [[*tokenizer.encode("ab"), tokenizer.eos_token_id]], [])
        ['ab']
    """
    control = {tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.unk_token_id, *ends}
    kept = [[token for token in row if token not in control] for row in rows]
    return tokenizer.batch_decode(kept, skip_special_tokens=False)


@final
@dataclass(frozen=True)
class GroupBatch:
    """Groups to sample: `group_size` completions of every prompt.

    Args:
        prompts: token ids of each prompt, at least one prompt, none empty.
        group_size: members a prompt.
        settings: temperature, truncation, limits, stop texts.
        seeds: one integer a member, prompt by prompt. A member's tokens are a function of its prompt and its seed
            (exactly in fp64; in fp32 up to near-ties).
        requires: ``entropy`` and ``score_norm`` are recorded when named.
        continue_with: called with a member's number and the tokens of the turn that just ended; returns the
            environment's tokens, or None to end it.
        begin_again: called before all groups are sampled from their beginning once more; it undoes what
            `continue_with` remembers of them.
    """

    prompts: Sequence[Sequence[int]]
    group_size: int
    settings: SamplingConfig
    seeds: Sequence[int]
    requires: Collection[str] = ("log_prob",)
    continue_with: Continue | None = None
    begin_again: Callable[[], None] | None = None

    def check(self, max_positions: int | None) -> None:
        """Refuses groups that cannot be sampled, before anything is computed.

        Args:
            max_positions: the model's longest sequence; None where it has no limit.

        Raises:
            ConfigError: an empty prompt, or prompt and completion longer than the model's context.
            ValueError: not one seed a member.
        """
        total, num_tokens = len(self.prompts) * self.group_size, self.settings.max_new_tokens
        if len(self.seeds) != total:
            raise ValueError(
                f"{len(self.seeds)} seeds for {len(self.prompts)} prompts x {self.group_size} members: give {total},"
                " one a member"
            )
        if not self.prompts or any(len(prompt) == 0 for prompt in self.prompts):
            raise ConfigError(
                "a prompt has no tokens; give every prompt at least one (a beginning-of-sequence token will do)"
            )
        longest = max(map(len, self.prompts))
        if max_positions is not None and longest + num_tokens > max_positions:
            raise ConfigError(
                f"the longest prompt has {longest} tokens and max_new_tokens = {num_tokens}, together above the model's"
                f" context of {max_positions}; write max_new_tokens = {max(max_positions - longest, 0)} or leave out"
                f" prompts above {max_positions - num_tokens} tokens"
            )


def sample(
    backbone: Backbone,
    batch: GroupBatch,
    *,
    tokenizer: Any = None,
    eos: Iterable[int] | None = None,
    max_members: int | None = None,
) -> Completions:
    """Draws the completions of a batch.

    Args:
        backbone: the model, taken apart.
        batch: the groups.
        tokenizer: needed for stop texts.
        eos: ids that end a turn; those of the model and tokenizer where omitted.
        max_members: sample at most this many at once, whole groups; all at once where omitted.

    Returns:
        `Completions`, on the model's device.

    Raises:
        ConfigError, ValueError: see `GroupBatch.check`.
        DistributionError: NaN or infinite numbers from the model.

    Dropout is off and every module's mode is restored. Autocast is as the caller has it, but never reaches the head. A
    group of one is legal.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> backbone = Backbone(
        ...     small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0)
        ... )
        >>> settings = SamplingConfig(max_new_tokens=3)
        >>> completions = sample(backbone, GroupBatch([[3, 4], [4]], 2, settings, seeds=[0, 1, 2, 3]))
        >>> len(completions.tokens), bool((completions.log_prob[completions.mask] < 0).all())
        (4, True)
        >>> single = sample(backbone, GroupBatch([[4]], 1, settings, seeds=[3]))
        >>> single.token_lists()[0] == completions.token_lists()[3]
        True
    """
    batch.check(backbone.max_positions)
    stops = Stops(
        end_ids(backbone.model, tokenizer) if eos is None else eos,
        batch.settings.stop,
        tokenizer,
        backbone.head.out_features,
        torch.device("cpu"),
    )
    prompts, size = batch.prompts, batch.group_size
    # Prompts of like length share a pass, so that little of it is padding.
    order = sorted(range(len(prompts)), key=lambda prompt: len(prompts[prompt]))
    num_at_once = len(prompts) if max_members is None else max(1, max_members // size)
    parts, members = [], list[int]()
    for start in range(0, len(order), num_at_once):
        places = order[start : start + num_at_once]
        numbers = [place * size + member for place in places for member in range(size)]
        run = _Run(backbone, batch, stops, numbers)
        with backbone.evaluating(), quick_adapters(backbone.model):
            parts.append(run.run([prompts[place] for place in places]))
        members += numbers
    joined = Completions.concatenate(parts) if len(parts) > 1 else parts[0]
    inverse_order = torch.tensor(members, device=backbone.device).argsort()
    return replace(joined, **{name: value[inverse_order] for name, value in tensors_of(joined).items()})


_READ_EVERY = 8
"""Tokens between two readings where reading waits for a device; a member writes at most seven more after its end, which
are dropped.
"""


class _Run:
    """One batch from prefill to the last token. The rows of `live` tensors are the members still in the batch; `rows`
    holds their rows in the result.
    """

    def __init__(self, backbone: Backbone, batch: GroupBatch, stops: Stops, numbers: Sequence[int]) -> None:
        self.backbone, self.stops, self.numbers = backbone, stops, numbers
        self.settings, self.group_size, self.continue_with = batch.settings, batch.group_size, batch.continue_with
        self.device, settings = backbone.device, batch.settings
        num, limit = len(numbers), settings.max_new_tokens
        dtype = torch.float64 if backbone.head.weight.dtype == torch.float64 else torch.float32
        # Half-precision weights are upcast once, not at every token; a GPU multiplies them as they are.
        self.weight = backbone.head.weight if backbone.head.weight.is_cuda else backbone.head.weight.to(dtype)
        # Steps are rows, so that a step is one contiguous write.
        self.columns: dict[str, Tensor] = {}
        for name in ("log_prob", "behaviour_log_prob", "entropy", "score_norm"):
            if name == "log_prob" or name in batch.requires or (name == "behaviour_log_prob" and settings.truncates):
                self.columns[name] = torch.zeros(limit, num, dtype=dtype, device=self.device)
        self.uniform = (
            None
            if settings.greedy
            else uniforms([batch.seeds[n] for n in numbers], limit).t().contiguous().to(self.device)
        )
        self.steps = torch.zeros(limit, num, dtype=torch.long, device=self.device)
        self.read = self.steps if self.steps.is_cpu else torch.zeros(limit, num, dtype=torch.long)
        self.num_read = 0
        # Reading waits for the device. In a conversation the next token depends on what is read.
        reads_late = not self.steps.is_cpu and self.continue_with is None and settings.max_turn_tokens is None
        self.read_every = _READ_EVERY if reads_late else 1
        self.length = [limit] * num
        self.truncated = [True] * num
        self.environment: list[list[tuple[int, int]]] = [[] for _ in range(num)]
        self.turn_start = [0] * num
        self.pending: dict[int, list[int]] = {}

    def run(self, prompts: Sequence[Sequence[int]]) -> Completions:
        limit, num = self.settings.max_new_tokens, len(self.numbers)
        hidden, decoder, position = prefill(self.backbone, prompts, self.group_size, limit)
        rows, live = None, [True] * num
        index = list(range(num))
        for step in range(limit):
            token = self._choose(hidden, step, rows)
            is_read = (step + 1) % self.read_every == 0 or step + 1 == limit
            if is_read and (ended := self._ended(step, index, live)):
                for slot in ended:
                    live[slot] = False
                num_live = sum(live)
                if num_live == 0:
                    break
                if len(live) - num_live >= max(1, len(live) * _LEAVE_SHARE):
                    stay = torch.tensor([slot for slot, alive in enumerate(live) if alive], device=self.device)
                    decoder.select(stay)
                    token, position = token[stay], position[stay]
                    rows = stay if rows is None else rows[stay]
                    index, live = [row for row, alive in zip(index, live, strict=True) if alive], [True] * num_live
            if step + 1 == limit:
                break
            hidden = decoder.step(token, position)
            position = position + 1
        return self._finish(max(self.length))

    def _choose(self, hidden: Tensor, step: int, rows: Tensor | None) -> Tensor:
        """Draws a token for every row and stores the recorded fields of the draw."""
        log_p = torch.log_softmax(self.backbone.logits(hidden, self.settings.temperature, self.weight), dim=-1)
        keep = truncation_mask(log_p, self.settings.top_k, self.settings.top_p) if self.settings.truncates else None
        p = None
        if self.uniform is None:
            token = log_p.argmax(1)
        else:
            p = log_p.exp()
            uniform = self.uniform[step] if rows is None else self.uniform[step][rows]
            token = draw(p if keep is None else p * keep, uniform)
        if self.pending:
            token = self._fed(token, rows)
        chosen = log_p.gather(1, token.unsqueeze(1)).squeeze(1)
        values = {"log_prob": chosen}
        if "behaviour_log_prob" in self.columns:
            mass = 0.0 if keep is None else log_p.masked_fill(~keep, float("-inf")).logsumexp(1)
            values["behaviour_log_prob"] = chosen - mass
        if "entropy" in self.columns or "score_norm" in self.columns:
            p = log_p.exp() if p is None else p
            if "entropy" in self.columns:
                values["entropy"] = -torch.linalg.vecdot(p, log_p.clamp_min(torch.finfo(log_p.dtype).min))
            if "score_norm" in self.columns:
                values["score_norm"] = (1 - 2 * chosen.exp() + torch.linalg.vecdot(p, p)).clamp_min(0).sqrt()
        for columns, value in ((self.steps, token), *((self.columns[name], value) for name, value in values.items())):
            if rows is None:
                columns[step] = value
            else:
                columns[step].index_copy_(0, rows, value)
        return token

    def _fed(self, token: Tensor, rows: Tensor | None) -> Tensor:
        """Replaces sampled tokens by the environment's next token in the rows where one is pending."""
        token = token.clone()
        order = range(len(token)) if rows is None else rows.tolist()
        for slot, row in enumerate(order):
            if row in self.pending:
                token[slot] = self.pending[row][0]
        return token

    def _ended(self, step: int, index: list[int], live: list[bool]) -> list[int]:
        """Reads the tokens that were not read yet, and lists the slots of the batch whose member ends with one."""
        first, self.num_read = self.num_read, step + 1
        if self.read is not self.steps:
            self.read[first : step + 1] = self.steps[first : step + 1].cpu()
        tokens = self.read[first : step + 1]
        ends_possible = self.stops.may_end[tokens if len(index) == tokens.shape[1] else tokens[:, index]]
        environment_rows = set(self.pending)
        for row in environment_rows:
            if len(self.pending[row]) == 1:
                del self.pending[row]
                self.turn_start[row] = step + 1
            else:
                self.pending[row].pop(0)
        places = ends_possible.nonzero().tolist() if bool(ends_possible.any()) else []
        candidates = {(slot, first + place) for place, slot in places}
        if self.settings.max_turn_tokens is not None:
            candidates |= {
                (slot, step)
                for slot, row in enumerate(index)
                if step + 1 - self.turn_start[row] >= self.settings.max_turn_tokens
            }
        ended: list[int] = []
        for slot, at in sorted(candidates):
            is_open = live[slot] and index[slot] not in environment_rows and ended[-1:] != [slot]
            if is_open and self._ends(index[slot], at):
                ended.append(slot)
        return ended

    def _ends(self, row: int, step: int) -> bool:
        turn = self.read[self.turn_start[row] : step + 1, row].tolist()
        by_text = self.stops.ends(turn)
        by_length = self.settings.max_turn_tokens is not None and len(turn) >= self.settings.max_turn_tokens
        if not by_text and not by_length:
            return False
        answer = None if self.continue_with is None else self.continue_with(self.numbers[row], turn)
        if answer is None:
            self.length[row], self.truncated[row] = step + 1, not by_text
            return True
        if len(answer):
            self.pending[row] = [int(token) for token in answer]
            self.environment[row].append((step + 1, step + 1 + len(answer)))
        else:
            self.turn_start[row] = step + 1
        return False

    def _finish(self, longest: int) -> Completions:
        length = torch.tensor(self.length, device=self.device)
        valid = torch.arange(longest, device=self.device) < length.unsqueeze(1)
        mask = valid.clone()
        for row, spans in enumerate(self.environment):
            for start, stop in spans:
                mask[row, start:stop] = False
        columns = {name: torch.where(mask, value[:longest].t(), 0) for name, value in self.columns.items()}
        # One check for the whole batch: a check at every token would wait for the device each time.
        if not columns["log_prob"].isfinite().all():
            check_finite(columns["log_prob"], self.numbers, self.group_size)
        return Completions(
            tokens=torch.where(valid, self.steps[:longest].t(), 0),
            mask=mask,
            length=length,
            log_prob=columns["log_prob"],
            behaviour_log_prob=columns.get("behaviour_log_prob"),
            entropy=columns.get("entropy"),
            score_norm=columns.get("score_norm"),
            truncated=torch.tensor(self.truncated, device=self.device),
        )


class Gathers(Protocol):
    """The processes of a run, as far as an engine needs them."""

    def gather(self, value: Any) -> list[Any]:
        """Collects a plain value from each process, and returns all of them on every process."""
        ...


class Engine(ABC):
    """A sampler of groups. `live` says whether it samples from the weights that are trained, as they are now,
    `has_servers` whether servers sample, `sends_weights` whether this process, and not another one, sends them the
    weights, `needs_rescoring` whether `sample` returns NaN log-probs, which the caller computes with all processes.
    """

    live: bool = True
    has_servers: bool = False
    sends_weights: bool = True
    needs_rescoring: bool = False

    @abstractmethod
    def sample(self, batch: GroupBatch) -> Completions:
        """Samples the groups of a batch; result and errors: see `groupwise.causal_lm.sampler.sample`."""

    def announce_length(self, num_tokens: int) -> None:  # noqa: B027
        """Notes the number of tokens of the longest text that will be sampled, prompt and completion; does nothing by
        default.
        """

    def send_weights(  # noqa: B027
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, peers: Gathers
    ) -> None:
        """Sends the current weights to servers that several processes share; does nothing by default. Every process
        calls it.

        Args:
            prompts: those that are trained on; a server proves its weights with some of them.
            max_new_tokens: the longest completion of the run.
            peers: the processes.
        """

    def check_scored(self, expected: Tensor, served: Tensor) -> None:  # noqa: B027
        """Compares log-probs that the caller computed with those that the engine reported; does nothing by default.

        Args:
            expected: `[N]` nats, of the trained weights.
            served: `[N]` nats.
        """

    def close(self) -> None:  # noqa: B027
        """Ends what the engine started; a second call does nothing."""


@final
class Builtin(Engine):
    """An engine in this process; see `groupwise.causal_lm.sampler.sample`."""

    def __init__(self, backbone: Backbone, tokenizer: Any, config: BuiltinEngine) -> None:
        self.backbone, self.tokenizer, self.config = backbone, tokenizer, config
        self._eos = end_ids(backbone.model, tokenizer)

    def sample(self, batch: GroupBatch) -> Completions:
        """Samples the groups, `max_members` at once."""
        options = {"tokenizer": self.tokenizer, "eos": self._eos, "max_members": self.config.max_members}
        return sample(self.backbone, batch, **options)
