"""The language policy whose weights are a server's; see `groupwise.domain.language.policy.Policy`."""

from __future__ import annotations

import io
import json
import math
import shutil
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from groupwise.causal_lm.config import BuiltinEngine, EngineConfig, SamplingConfig
from groupwise.causal_lm.loading import load_tokenizer
from groupwise.causal_lm.sampler import Completions, Engine, GroupBatch
from groupwise.causal_lm.scoring import ScoringInputs
from groupwise.causal_lm.turns import Request, Turn, as_completions, padded, take_turns
from groupwise.config import ConfigError
from groupwise.domain.exported import Card, Export
from groupwise.domain.language.config import LanguageConfig
from groupwise.domain.language.policy import Policy
from groupwise.learner.protocol import Learner
from groupwise_tinker.client import Sequenced, Service, TinkerError
from groupwise_tinker.config import Tinker
from groupwise_tinker.learner import TinkerLearner
from groupwise_tinker.saved import FILE, SavedState

_PLACE = 'with model.kind = "tinker"'
_FULL_DISTRIBUTION = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}


@final
class TinkerPolicy(Policy):
    """A LoRA adapter on a server: the server samples, scores and differentiates.

    Args:
        config: address, base model and sizes.
        engine: the built-in one, in whose place the server samples.
        seed: the seed of the adapter's initial weights.

    Raises:
        ConfigError: the server is of another kind, lacks the base model, or reduces losses by an unknown rule; or the
            tokenizer names no token that ends a completion.
    """

    supplies = frozenset({"log_prob"})

    def __init__(self, config: Tinker, engine: EngineConfig, seed: int) -> None:
        _check_engine(engine)
        service = Service(config)
        try:
            self.tokenizer = _tokenizer(config)
            self._server = TinkerLearner(service, seed, config.state)
        except BaseException:
            service.close()
            raise
        self.end_ids: tuple[int, ...] = (int(self.tokenizer.eos_token_id),)
        self.max_positions = config.max_positions
        self.device = torch.device("cpu")
        self._config = config
        self.learner: Learner = self._server
        self.engine = self.live_engine = _ServerEngine(self._server, self.end_ids, self.max_positions)

    @property
    def remarks(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Sentences about the server, whose rules are measured for them."""
        rules = self._server.rules
        remarks = [
            f"model: {self._config.base_model} at {self._config.address}, whose gradient was measured to be:"
            f" {rules.reduction}; members of a group share a seed there, and a resumed run is not equal to the bit"
        ]
        if not rules.clips:
            remarks.append("model: this server was measured not to clip gradients, so train.max_grad_norm does nothing")
        return remarks

    def score(self, inputs: ScoringInputs) -> dict[str, Tensor]:
        """Scores completions on the server, without gradient."""
        return {"log_prob": _padded(self._server.log_probs(_members(inputs)), inputs.mask)}

    def backward(self, inputs: ScoringInputs, cotangents: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Queues the gradient, which the learner sends with its step."""
        members = _members(inputs)
        rows = cotangents["log_prob"].tolist()
        cut = [row[: len(member.tokens)] for row, member in zip(rows, members, strict=True)]
        return {"log_prob": _padded(self._server.queue(members, cut), inputs.mask)}

    def save(self, folder: Path) -> None:
        """Saves the state on the server, and here its path with the tokenizer."""
        self.learner.save(folder)
        self.tokenizer.save_pretrained(folder)

    def with_engine(self, engine: EngineConfig) -> TinkerPolicy:
        """Returns itself: the server samples."""
        _check_engine(engine)
        return self


@final
class _ServerEngine(Engine):
    """Samples on the server, all groups at once; turn by turn where there is an environment."""

    def __init__(self, server: TinkerLearner, end_ids: Sequence[int], max_positions: int | None) -> None:
        self._server, self._end_ids, self._max_positions = server, end_ids, max_positions

    def sample(self, batch: GroupBatch) -> Completions:
        """Samples the groups of a batch.

        Raises:
            ConfigError: settings under which the server's log-probs are of another distribution, stop texts, or
                prompts without tokens.
            TinkerError: the server fails, or answers without tokens and log-probs.
        """
        check_sampling(batch.settings)
        batch.check(self._max_positions)
        temperature = 0.0 if _is_greedy(batch.settings) else 1.0

        def complete(requests: list[Request]) -> list[Turn]:
            # The first request asks for a whole group: the server draws its members from one seed.
            size = batch.group_size if requests[0].num_before == 0 else 1
            asked = [(r.context, size, r.num_tokens, r.seed) for r in requests[::size]]
            turns = [turn for group in self._server.active.sample(asked, temperature, self._end_ids) for turn in group]
            if len(turns) != len(requests):
                raise TinkerError(f"the server gave {len(turns)} completions, asked for {len(requests)}")
            return [_checked_turn(turn, request) for turn, request in zip(turns, requests, strict=True)]

        members = take_turns(complete, batch)
        tokens = padded((member.tokens for member in members), 0, torch.long)
        mask = padded((member.mask for member in members), False, torch.bool)
        log_prob = padded((member.log_prob for member in members), 0.0, torch.float32)
        return as_completions(members, tokens, mask, {"log_prob": log_prob}, None)


def _checked_turn(turn: Any, request: Request) -> Turn:
    tokens, values = list(turn.tokens), [min(float(value), 0.0) for value in turn.logprobs or ()]
    if not tokens or len(tokens) != len(values) or len(tokens) > request.num_tokens:
        raise TinkerError(f"the server gave {len(tokens)} tokens with {len(values)} log-probs for one completion")
    if not all(map(math.isfinite, values)):
        raise TinkerError("the server gave a log-prob that is not finite; look at the server's own log")
    return Turn(tokens, values, turn.stop_reason != "length")


def _tokenizer(config: Tinker) -> Any:
    tokenizer = load_tokenizer(config.tokenizer or config.base_model)
    if tokenizer.eos_token_id is None:
        raise ConfigError(
            f"model.tokenizer = {config.tokenizer or config.base_model!r}: it names no token that ends a completion;"
            " write a folder whose tokenizer has an eos_token"
        )
    return tokenizer


def _members(inputs: ScoringInputs) -> list[Sequenced]:
    """Returns the members, cut after their last decision: what follows it moves no log-prob that is asked for."""
    members = []
    for prompt, row, chosen in zip(inputs.prompts, inputs.tokens.tolist(), inputs.mask.tolist(), strict=True):
        length = max((place + 1 for place, value in enumerate(chosen) if value), default=0)
        members.append(Sequenced(prompt, row[:length], chosen[:length]))
    return members


def _padded(rows: Sequence[Sequence[float]], mask: Tensor) -> Tensor:
    values = torch.zeros(mask.shape)
    for number, row in enumerate(rows):
        values[number, : len(row)] = torch.tensor(row)
    return torch.where(mask.cpu(), values, 0.0)


def _check_engine(engine: Any) -> None:
    if not isinstance(engine, BuiltinEngine):
        raise ConfigError(
            f'engine.kind = "{engine.kind}" with model.kind = "tinker": the server samples itself; leave engine out'
        )


def check_config(config: LanguageConfig) -> None:
    """Refuses settings of a run that a server cannot serve, before the server is called.

    Raises:
        ConfigError: a temperature other than 1, top-p or top-k, at any step, or stop texts, also of an environment.
    """
    for name, allowed in _FULL_DISTRIBUTION.items():
        _check(f"sampling.{name}", getattr(config.sampling, name), allowed)
    for name, schedule in config.sampling_schedule.items():
        for value in schedule.extremes() if name in _FULL_DISTRIBUTION else ():
            _check(f"sampling_schedule.{name}", value, _FULL_DISTRIBUTION[name])
    _check_stop((*config.sampling.stop, *(() if config.environment is None else config.environment.stop)))


def check_sampling(settings: SamplingConfig) -> None:
    """Refuses settings under which the server would sample from, or report, another distribution; the mode of the
    policy (`greedy`, or `top_k = 1`) is allowed.

    Raises:
        ConfigError: a temperature other than 1, top-p, top-k, or stop texts.
    """
    if not _is_greedy(settings):
        for name, allowed in _FULL_DISTRIBUTION.items():
            _check(f"sampling.{name}", getattr(settings, name), allowed)
    _check_stop(settings.stop)


def _check_stop(stop: Sequence[str]) -> None:
    if stop:
        raise ConfigError(
            f"sampling.stop = {list(stop)!r} {_PLACE}: the server stops at token ids only; leave stop out, and"
            " environments that end a turn at a text"
        )


def _check(key: str, value: float, allowed: float) -> None:
    if value != allowed:
        raise ConfigError(
            f"{key} = {value:g} {_PLACE}: the server's log-probs are those of its full distribution at temperature 1;"
            f" write {allowed:g}"
        )


def _is_greedy(settings: SamplingConfig) -> bool:
    return settings.greedy or settings.top_k == 1


# The export of an adapter that a server trained: its weights are downloaded, and peft loads the folder.

_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"
_LARGEST_CONFIG = 1 << 20


def export_adapter(request: Export) -> Card:
    """Writes the adapter as peft loads it, with the tokenizer next to it, and describes the folder on its card.

    Raises:
        ConfigError: the server cannot be reached, gives no archive, or one that holds no adapter of peft.
    """
    from groupwise_tinker.client import Service, TinkerError

    saved = SavedState.read(request.model)
    model = {**request.settings["model"], "address": saved.address, "base_model": saved.base_model}
    try:
        with closing(Service(Tinker.model_validate(model))) as service:
            archive = service.download(saved.weights)
    except TinkerError as error:
        raise ConfigError(
            f"{error}; no archive of the weights {saved.weights} can be had. As long as the server keeps the run's"
            f" state, training goes on from it: domain.model.state = {saved.state!r}"
        ) from error
    shutil.copytree(request.model, request.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(FILE))
    files = _adapter_files(archive, saved.weights)
    (request.folder / _WEIGHTS).write_bytes(files[_WEIGHTS])
    config = _completed(json.loads(files[_CONFIG]), files[_WEIGHTS], saved.base_model)
    (request.folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return Card(
        loading=f'peft.AutoPeftModelForCausalLM.from_pretrained("{request.out}")',
        library="peft",
        task="text-generation",
        adapter=True,
        remarks=[f"It is the adapter alone: peft loads {saved.base_model} below it"],
    )


def _adapter_files(archive: bytes, path: str) -> dict[str, bytes]:
    """Returns the content of the two files of peft; nothing else of the archive is read."""
    files = dict[str, bytes]()
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if member.isfile() and name in (_WEIGHTS, _CONFIG):
                    content = tar.extractfile(member)
                    assert content is not None
                    files[name] = content.read(_LARGEST_CONFIG if name == _CONFIG else -1)
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        raise ConfigError(f"the archive of {path} is no tar archive; the server is of another kind") from None
    if missing := sorted({_WEIGHTS, _CONFIG} - files.keys()):
        raise ConfigError(f"the archive of {path} lacks {', '.join(missing)}: it is no adapter of peft")
    return files


def _completed(config: dict[str, Any], weights: bytes, base_model: str) -> dict[str, Any]:
    """Returns the configuration with the modules that the weights adapt, where the server names none: peft would
    otherwise take those that it knows for the architecture, and leave the weights of the others out.
    """
    length = int.from_bytes(weights[:8], "little")
    names = [name for name in json.loads(weights[8 : 8 + length]) if ".lora_A" in name]
    modules = sorted({name.partition(".lora_A")[0].rpartition(".")[2] for name in names})
    return {
        **config,
        "base_model_name_or_path": base_model,
        "target_modules": config.get("target_modules") or modules,
        "task_type": config.get("task_type") or "CAUSAL_LM",
    }
