"""A causal language model that answers from demonstrations: any `AutoModelForCausalLM`, answers scored by their token
ids.
"""

import hashlib
from collections.abc import Sequence
from typing import final

from groupwise.causal_lm.config import BuiltinEngine, SamplingConfig, TransformersEngine
from groupwise.causal_lm.continuation import continuation_log_probs
from groupwise.causal_lm.engines import Generate, continues_from_keys
from groupwise.causal_lm.loading import LoadedLM
from groupwise.causal_lm.prompt import encode_prompts, render_chat
from groupwise.causal_lm.sampler import Builtin, Engine, GroupBatch
from groupwise.config import ConfigError
from groupwise.learner.copy import hash_weights
from groupwise_selection.example import Example, Query
from groupwise_selection.task_model.cache import Answers
from groupwise_selection.task_model.template import ChatTemplate, Template, TextTemplate


@final
class CausalLMTaskModel:
    """A frozen causal language model with a template; see `groupwise_selection.task_model.base.TaskModel`.

    `score = sum_t log p(answer_t | prompt, answer_<t)`: the prompt is the template's text tokenised once, the answer is
    tokenised by itself, and the two lists of ids are joined. No text is tokenised again, so no token spans the
    boundary.

    Args:
        loaded: model and tokenizer, from `groupwise.causal_lm.loading.load`.
        template: template of the prompts.
        max_new_tokens: highest number of tokens of a generated answer.
        batch_tokens: tokens of a forward pass.

    Raises:
        ConfigError: the template is a chat and the tokenizer has no chat template, or the template shows images.
    """

    def __init__(
        self, loaded: LoadedLM, template: Template | None = None, *, max_new_tokens: int = 16, batch_tokens: int = 16384
    ) -> None:
        self.template: Template = template or TextTemplate()
        self.max_new_tokens, self.batch_tokens = max_new_tokens, batch_tokens
        self._backbone, self._tokenizer = loaded.backbone, loaded.tokenizer
        self._answers = Answers(loaded.tokenizer, self.template)
        self._fingerprint: str | None = None
        self._keeps_keys: bool | None = None
        if self.template.num_images:
            raise ConfigError(
                "template.question holds {image}, which a causal language model cannot see; write task_model.kind ="
                " 'image_text'"
            )
        if isinstance(self.template, ChatTemplate) and not getattr(loaded.tokenizer, "chat_template", None):
            raise ConfigError(
                "template.kind = 'chat', but the tokenizer has no chat template; write template.kind = 'text'"
            )

    def score(
        self, queries: Sequence[Query], demos: Sequence[Sequence[Example]], answers: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Computes `log P(answer | query, demos in this order)` in nats, one list a query.

        Args:
            queries: `Q` queries.
            demos: `Q` lists of demonstrations in the order of the prompt.
            answers: `Q` lists of answers.

        Raises:
            ConfigError: a prompt with its answer is longer than the model's context, or an answer becomes no token; the
                message names the query.
        """
        prompts = self._prompts(queries, demos)
        continuations = [
            [self._answers.ids(answer, query.id) for answer in query_answers]
            for query, query_answers in zip(queries, answers, strict=True)
        ]
        for query, query_demos, prompt, answer_ids in zip(queries, demos, prompts, continuations, strict=True):
            self._check_length(query, query_demos, len(prompt) + max(map(len, answer_ids), default=0))
        return continuation_log_probs(self._backbone, prompts, continuations, batch_tokens=self.batch_tokens)

    def generate(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[str]:
        """Generates the greedy answer to each query, up to the template's stop text or `max_new_tokens`.

        Args:
            queries: `Q` queries.
            demos: `Q` lists of demonstrations in the order of the prompt.

        Raises:
            ConfigError: the model's context has no room for `max_new_tokens`; the message names the query.
        """
        prompts = self._prompts(queries, demos)
        for query, query_demos, prompt in zip(queries, demos, prompts, strict=True):
            self._check_length(query, query_demos, len(prompt) + self.max_new_tokens)
        # Equal prompts have the same answer.
        distinct = sorted(set(map(tuple, prompts)))
        settings = SamplingConfig(max_new_tokens=self.max_new_tokens, greedy=True, stop=self.template.stop)
        texts: list[str] = []
        if distinct:
            drawn = self._engine(max(map(len, distinct))).sample(GroupBatch(distinct, 1, settings, [0] * len(distinct)))
            texts = [self._answers.text(ids) for ids in drawn.token_lists()]
        answer = dict(zip(distinct, texts, strict=True))
        return [answer[tuple(prompt)] for prompt in prompts]

    def _engine(self, longest: int) -> Engine:
        """Returns the engine that writes answers to prompts of at most that many tokens; a model that keeps a state in
        place of keys and values writes one answer at a time.
        """
        if self._keeps_keys is None:
            self._keeps_keys = continues_from_keys(self._backbone)
        if self._keeps_keys:
            return Builtin(
                self._backbone, self._tokenizer, BuiltinEngine(max_members=max(1, self.batch_tokens // longest))
            )
        return Generate(self._backbone, self._tokenizer, TransformersEngine(max_members=1))

    def fingerprint(self) -> str:
        """Returns a hash of the weights, the tokenizer, the template and `max_new_tokens`."""
        if self._fingerprint is None:
            hasher = hashlib.sha256(hash_weights(self._backbone.model).encode())
            hasher.update(self._answers.description.encode())
            hasher.update(
                f"{self._backbone.config.to_json_string()}{self.template.model_dump_json()}{self.max_new_tokens}".encode()
            )
            self._fingerprint = hasher.hexdigest()[:32]
        return self._fingerprint

    def _prompts(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[list[int]]:
        pairs = [
            (query.question, [(demo.question, demo.answer) for demo in query_demos])
            for query, query_demos in zip(queries, demos, strict=True)
        ]
        template, tokenizer = self.template, self._tokenizer
        if not pairs:
            return []
        if isinstance(template, ChatTemplate):
            texts = [
                render_chat(tokenizer, template.messages(question, solved), template.template_arguments)
                for question, solved in pairs
            ]
        else:
            texts = [template.prompt(question, solved) for question, solved in pairs]
        token_ids = encode_prompts(tokenizer, texts, rendered=isinstance(template, ChatTemplate))
        for query, ids in zip(queries, token_ids, strict=True):
            if not ids:
                raise ConfigError(
                    f"query {query.id!r}: its prompt becomes no token, and nothing predicts an answer; put some text"
                    " into template.question"
                )
        return token_ids

    def _check_length(self, query: Query, demos: Sequence[Example], num_tokens: int) -> None:
        limit = self._backbone.max_positions
        if limit is not None and num_tokens > limit:
            raise ConfigError(
                f"query {query.id!r} with {len(demos)} demonstrations and the answer takes {num_tokens} tokens, above"
                f" the model's context of {limit}; show fewer or shorter demonstrations, or use a model with a longer"
                " context"
            )
