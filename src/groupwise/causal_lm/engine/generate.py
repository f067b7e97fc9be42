"""``model.generate`` of transformers as an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig, TransformersEngine
from groupwise.causal_lm.draw import DistributionError
from groupwise.causal_lm.engine.base import Engine, GroupBatch
from groupwise.causal_lm.engine.turns import Request, Turn, converse
from groupwise.causal_lm.sampler import Completions, end_ids
from groupwise.causal_lm.stop import Stops


@final
class Generate(Engine):
    """An engine that calls ``model.generate``: prompts padded on the left, one call a turn; the global generators are
    left as they were.
    """

    def __init__(self, backbone: Backbone, tokenizer: Any, config: TransformersEngine) -> None:
        self.backbone, self.tokenizer, self.config = backbone, tokenizer, config
        self.eos = end_ids(backbone.model, tokenizer)

    def answer(self, batch: GroupBatch) -> Completions:
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
        wrapped: Any = self.backbone.model
        model = wrapped.get_base_model() if hasattr(wrapped, "peft_config") else wrapped
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
        """Cuts a row at its own end; generate pads it to the longest of the batch."""
        for n in range(1, min(len(tokens), request.num_tokens) + 1):
            if stops.ends(tokens[:n]):
                return Turn(tokens[:n], log_prob[:n], True)
        return Turn(tokens[: request.num_tokens], log_prob[: request.num_tokens], False)


class _Finite(LogitsProcessor):
    """A guard that names the member whose distribution is broken, before `generate` draws from it."""

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
    """Removes a model folder's own generation settings within the block: folders bring penalties and truncations for
    people who chat.
    """
    previous = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = previous
