"""The engines that sample in this process: the built-in sampler and ``model.generate``, and which of them serve a
model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import DynamicLayer

from groupwise.causal_lm import sampler
from groupwise.causal_lm.backbone import Backbone, base_of
from groupwise.causal_lm.config import BuiltinEngine, SamplingConfig, TransformersEngine
from groupwise.causal_lm.decode import DistributionError, Stops
from groupwise.causal_lm.sampler import Builtin, Completions, Engine, GroupBatch, end_ids
from groupwise.causal_lm.scoring import ScoringInputs, score
from groupwise.causal_lm.turns import Request, Turn, converse
from groupwise.config import ConfigError
from groupwise.processes import is_out_of_memory

_PROMPTS = ((0, 1, 2, 3, 4), (5, 6))
"""Prompts of two lengths, so that one is padded."""
_AGREEMENT_NUM_TOKENS = 3


@final
class Generate(Engine):
    """An engine that calls ``model.generate``: prompts padded on the left, one call a turn; the global generators are
    left as they were.
    """

    def __init__(self, backbone: Backbone, tokenizer: Any, config: TransformersEngine) -> None:
        self.backbone, self.tokenizer, self.config = backbone, tokenizer, config
        self.eos = end_ids(backbone.model, tokenizer)

    def sample(self, batch: GroupBatch) -> Completions:
        """Samples the groups, `max_members` at once."""
        settings = batch.settings
        stops = Stops(self.eos, settings.stop, self.tokenizer, self.backbone.head.out_features, torch.device("cpu"))

        def complete(requests: list[Request]) -> list[Turn]:
            size = self.config.max_members or len(requests)
            return [
                turn
                for start in range(0, len(requests), size)
                for turn in self._generate(requests[start : start + size], settings, stops)
            ]

        return converse(complete, self.backbone, batch)

    def _generate(self, requests: list[Request], settings: SamplingConfig, stops: Stops) -> list[Turn]:
        longest, device = max(len(request.context) for request in requests), self.backbone.device
        ids = torch.tensor([[0] * (longest - len(r.context)) + r.context for r in requests], device=device)
        mask = torch.tensor([[0] * (longest - len(r.context)) + [1] * len(r.context) for r in requests], device=device)
        options: dict[str, Any] = (
            {"do_sample": False} if settings.greedy else {"do_sample": True, "temperature": settings.temperature}
        )
        if not settings.greedy:
            options |= {"top_p": settings.top_p, "top_k": settings.top_k}
        if settings.stop:
            options |= {"stop_strings": list(settings.stop), "tokenizer": self.tokenizer}
        model = base_of(self.backbone.model)
        cuda = [device] if device.type == "cuda" else []
        with self.backbone.evaluating(), _plain_generation(model), torch.random.fork_rng(devices=cuda):
            torch.manual_seed(hash(tuple(request.seed for request in requests)) % 2**63)
            out = model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=max(request.num_tokens for request in requests),
                eos_token_id=list(self.eos),
                pad_token_id=self.eos[0],
                return_dict_in_generate=True,
                output_scores=True,
                logits_processor=LogitsProcessorList([_Finite(requests, longest)]),
                **options,
            )
        sampled = out.sequences[:, longest:]
        # Scores are logits after temperature and truncation: those of the behaviour policy.
        log_prob = torch.stack(
            [
                torch.log_softmax(s.float(), -1).gather(1, t[:, None])[:, 0]
                for s, t in zip(out.scores, sampled.t(), strict=True)
            ],
            1,
        )
        rows = zip(requests, sampled.tolist(), log_prob.tolist(), strict=True)
        return [self._cut(request, tokens, values, stops) for request, tokens, values in rows]

    @staticmethod
    def _cut(request: Request, tokens: list[int], log_prob: list[float], stops: Stops) -> Turn:
        """Cuts a row at its own end, because `generate` pads it to the longest row of the batch."""
        for n in range(1, min(len(tokens), request.num_tokens) + 1):
            if stops.ends(tokens[:n]):
                return Turn(tokens[:n], log_prob[:n], True)
        return Turn(tokens[: request.num_tokens], log_prob[: request.num_tokens], False)


class _Finite(LogitsProcessor):
    """A guard before each draw of `generate`: it names the member whose distribution is broken."""

    def __init__(self, requests: list[Request], longest: int) -> None:
        self.requests, self.longest = requests, longest

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        broken = (~scores.amax(1).isfinite()).nonzero().squeeze(1).tolist()
        if broken:
            request = self.requests[broken[0]]
            raise DistributionError(
                len(broken), len(self.requests), request.place, request.num_before + input_ids.shape[1] - self.longest
            )
        return scores


@contextmanager
def _plain_generation(model: Any) -> Iterator[None]:
    """Removes a model folder's own generation settings within the block. Folders bring penalties and truncations meant
    for chatting.
    """
    previous = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = previous


def open_local(config: BuiltinEngine | TransformersEngine, backbone: Backbone, tokenizer: Any) -> Engine:
    """Opens an engine in this process.

    Raises:
        ConfigError: it cannot sample from this family of models.
    """
    name = type(base_of(backbone.model)).__name__
    if not continues_from_keys(backbone):
        if not _leaves_padding_out(backbone):
            raise ConfigError(
                f"{name} reads padding as text: prompts of different lengths cannot be sampled together, so this family"
                " is not supported; train another model"
            )
        if isinstance(config, BuiltinEngine):
            raise ConfigError(
                f"{name} keeps a recurrent state from token to token, and the built-in sampler goes on from keys and"
                ' values alone; write domain.engine.kind = "transformers"'
            )
    if isinstance(config, TransformersEngine):
        return Generate(backbone, tokenizer, config)
    if (reason := why_not_sampled(backbone)) is not None:
        raise ConfigError(
            f'the built-in sampler does not serve {name} ({reason}); write domain.engine.kind = "transformers"'
        )
    return Builtin(backbone, tokenizer, config)


def why_not_sampled(backbone: Backbone) -> str | None:
    """Tries the built-in sampler on a few tokens. It fails, or records other log-probs, where a model family carries
    more from token to token than keys and values, or in another form.

    Returns:
        what went wrong; `None` where the sampler serves the model.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> why_not_sampled(
        ...     Backbone(small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0))
        ... )
    """
    if (backbone.max_positions or 64) < len(_PROMPTS[0]) + _AGREEMENT_NUM_TOKENS:
        return None
    prompts = [[token % backbone.config.vocab_size for token in prompt] for prompt in _PROMPTS]
    try:
        settings = SamplingConfig(max_new_tokens=_AGREEMENT_NUM_TOKENS)
        drawn = sampler.sample(backbone, GroupBatch(prompts, 2, settings, range(4)), eos=())
        inputs = ScoringInputs([prompt for prompt in prompts for _ in range(2)], drawn.tokens, drawn.mask)
        with backbone.evaluating():
            rescored = score(backbone, inputs, pack=False)["log_prob"]
    except DistributionError:
        # Weights that are NaN or infinite are reported when the first member is drawn.
        return None
    except Exception as error:  # a model family may raise any error if it is given another cache than its own
        if is_out_of_memory(error):
            raise
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    differences = (rescored - drawn.log_prob)[drawn.mask].abs()
    # Half precision rounds a large model's log-probs by tenths.
    half = next(backbone.model.parameters()).dtype.itemsize < 4
    agrees = bool(differences.mean() <= 0.5) if half else bool(differences.max() <= 0.05)
    if agrees:
        return None
    largest = float(differences.max())
    return f"its log-probs are up to {largest:.2g} nats from those that scoring computes for the same tokens"


def continues_from_keys(backbone: Backbone) -> bool:
    """Tests whether keys and values are all that the model carries from token to token: forwards two tokens and looks
    at the layers of their cache.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> continues_from_keys(
        ...     Backbone(small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0))
        ... )
        True
    """
    cache = DynamicCache(config=backbone.config)
    with backbone.evaluating():
        try:
            backbone.forward(torch.tensor([[0, 1]], device=backbone.device), past_key_values=cache, use_cache=True)
        except Exception as error:  # a family with another cache raises errors of any kind
            if is_out_of_memory(error):
                raise
            return False
    # A state-space layer holds a state, in some models in addition to keys and values.
    return bool(cache.layers) and all(
        isinstance(layer, DynamicLayer) and layer.keys is not None and not hasattr(layer, "recurrent_states")
        for layer in cache.layers
    )


def _leaves_padding_out(backbone: Backbone) -> bool:
    """Tests that padding before a text does not change the states of the text."""
    ids = torch.arange(3, device=backbone.device).unsqueeze(0)
    padded, mask = torch.cat([ids[:, :2], ids], 1), torch.tensor([[0, 0, 1, 1, 1]], device=backbone.device)
    with backbone.evaluating():
        states, padded_states = (
            backbone.hidden(ids, use_cache=False)[0],
            backbone.hidden(padded, attention_mask=mask, use_cache=False)[0, 2:],
        )
    tolerance = 5e-2 if states.dtype.itemsize < 4 else 1e-3
    return bool((states - padded_states).abs().max() <= tolerance * states.abs().max())
