"""A judge: a language model at an OpenAI-compatible address that grades completions."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, final

from pydantic import Field, field_validator, model_validator

from groupwise.config import ImportPath, user_callable
from groupwise.config.errors import Count, Parallel, Positive
from groupwise.replies import Reply, ReplyError, certificates, post
from groupwise.reward.base import Noted, Reward, RewardError, RewardFunction, Value
from groupwise.reward.callable import ENTRY_POINTS
from groupwise.reward.completions import Text, completion_text, excerpt, prompt_text
from groupwise.reward.scoring.table import as_number
from groupwise.reward.texts.answers import SlowPattern, check_pattern, last_match, whole_number

TEMPLATE = """You grade an answer to a question. Judge only whether it is right, complete and clear.

Question:
{prompt}

Answer:
{completion}

Give one line of reasons, then a last line of the form "Score: N", N from 0 (useless) to 10 (perfect)."""

_FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")
# Statuses of busy or broken servers, which recover. Any other refusal is a mistake in the request, which a retry does
# not fix.
_PASSING = frozenset({408, 409, 425, 429})
# Statuses that depend on the completion: it is too long, or cannot be processed.
_OF_COMPLETION = frozenset({400, 413, 422})
_MAX_BYTES = 4 << 20


@final
class Judge(Reward):
    """A number read out of a language model's verdict, scaled to [0, 1]: `(N - lowest) / (highest - lowest)`.

    Requests of a batch run concurrently. One that fails (no connection, time limit, 429, 5xx) is tried again; after the
    last try the reward is missing and counted as `judge_failed`; a verdict without a number in range as
    `judge_unparsable`. A request that is refused for what it holds (400, 413, 422: the completion is too long, say) is
    missing and counted as `judge_refused`, unless all of a batch are. Any other refusal (401, 404) is an error. Replies
    are data: one of more than 4 MiB, packed or unpacked, or nested too deeply to be read is a failed one.

    Example:
        >>> Judge(address="http://127.0.0.1:8000/v1", model="m", template="{prompt} {completion} {answer}").needs
        ('answer',)
    """

    kind: Literal["judge"] = "judge"
    address: str
    """Address of the service, up to and with its version: `https://host/v1`; `/chat/completions` is added."""
    model: str
    """The model's name at that address."""
    api_key_variable: str | None = None
    """Name of the environment variable that holds the key. A key is never written into a configuration."""
    template: str = TEMPLATE
    """The question to the judge; `{prompt}`, `{completion}` and the name of any data column in braces are filled in."""
    system: str | None = None
    """A system message before the question."""
    pattern: str = (
        r"(?i)score[\s*_`\"']*+(?:\([^()\n]{0,40}\))?[\s*_`\"']*+(?:[:=：＝]|\bis\b)?[\s*_`\"'\[(]*+"
        r"([-+\u2212\u2013\uff0d]?[\d.,．，]*\d(?:e[-+]?\d++)?)"
    )
    """A regular expression whose first group is the number; its last match counts, read as by `numeric_answer`."""
    lowest: float = 0.0
    highest: float = 10.0
    temperature: Annotated[float, Field(ge=0)] = 0.0
    max_tokens: Positive = 512
    num_retries: Count = 3
    """Further tries after a failed one, waiting twice as long each time."""
    retry_seconds: Annotated[float, Field(ge=0)] = 0.5
    """The first wait."""
    seconds_per_request: Annotated[float, Field(gt=0)] = 60.0
    num_parallel: Parallel = 8
    """Requests under way at once."""
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 600.0

    _compiles = field_validator("pattern")(check_pattern)

    @field_validator("address")
    @classmethod
    def _is_address(cls, address: str) -> str:
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"{address!r} is no address; write it as http://host:port/v1 or https://host/v1")
        return address

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.lowest < self.highest:
            raise ValueError(f"lowest = {self.lowest} must be below highest = {self.highest}")
        if re.compile(self.pattern).groups < 1:
            raise ValueError(f"pattern = {self.pattern!r} has no group; put the number in parentheses")
        if "completion" not in _FIELD.findall(self.template):
            raise ValueError("template does not contain {completion}, so the judge would not see what it grades")
        return self

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(name for name in _FIELD.findall(self.template) if name not in ("prompt", "completion"))
        )

    def open(self) -> Judge:
        self._headers()
        return self

    async def __call__(
        self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]
    ) -> list[Value]:
        import httpx

        free = asyncio.Semaphore(self.num_parallel)

        async def grade(member: int) -> Value:
            if any(columns[name][member] is None for name in self.needs):
                return None
            fields = {name: str(columns[name][member]) for name in self.needs}
            fields |= {"prompt": prompt_text(prompts[member]), "completion": completion_text(completions[member])}
            async with free:
                return await self._verdict(client, _FIELD.sub(lambda match: fields[match[1]], self.template))

        settings = {"timeout": self.seconds_per_request, "verify": certificates()}
        async with httpx.AsyncClient(headers=self._headers(), **settings) as client:
            values = await asyncio.gather(*(grade(member) for member in range(len(completions))))
        refused = [value.detail for value in values if isinstance(value, Noted) and value.event == "judge_refused"]
        if refused and len(refused) == len(values):
            raise self._refusal(refused[0])
        return list(values)

    async def _verdict(self, client: Any, question: str) -> Value:
        messages = [{"role": "system", "content": self.system}] if self.system is not None else []
        messages.append({"role": "user", "content": question})
        body = {
            "model": self.model,
            "messages": messages,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        reason = ""
        for attempt in range(self.num_retries + 1):
            if attempt:
                await asyncio.sleep(min(30.0, self.retry_seconds * 2 ** (attempt - 1)))
            try:
                reply = await post(
                    client,
                    self.address.rstrip("/") + "/chat/completions",
                    body,
                    seconds=self.seconds_per_request,
                    max_bytes=_MAX_BYTES,
                )
            except ReplyError as error:
                reason = str(error)
                continue
            if reply.status in _PASSING or reply.status >= 500:
                reason = _described(reply)
                continue
            if reply.status in _OF_COMPLETION:
                return Noted(None, "judge_refused", _described(reply))
            if reply.status != 200:
                raise self._refusal(_described(reply))
            try:
                verdict = reply.json()["choices"][0]["message"]["content"]
                return self._number(verdict if isinstance(verdict, str) else "")
            except (ReplyError, KeyError, IndexError, TypeError):
                reason = f"no chat completion: {excerpt(reply.text[:1000])}"
        return Noted(None, "judge_failed", reason)

    def _refusal(self, reply_text: str) -> ValueError:
        check = f"check address, model and api_key_variable = {self.api_key_variable!r}"
        return ValueError(f"the judge at {self.address} refused model = {self.model!r} with {reply_text}; {check}")

    def _number(self, verdict: str) -> Value:
        try:
            match = last_match(self.pattern, verdict)
        except SlowPattern:
            match = None
        text = "" if match is None else match[1] or ""
        if (number := whole_number(text)) is None:
            return Noted(None, "judge_unparsable", excerpt(verdict[:1000]))
        if not self.lowest <= number <= self.highest:
            return Noted(None, "judge_unparsable", f"{excerpt(text)} is not in [{self.lowest:g}, {self.highest:g}]")
        return (float(number) - self.lowest) / (self.highest - self.lowest)

    def _headers(self) -> dict[str, str]:
        if self.api_key_variable is None:
            return {}
        key = os.environ.get(self.api_key_variable)
        if not key:
            raise RewardError(
                f"judge: api_key_variable = {self.api_key_variable!r} names an environment variable that is not set;"
                " export it, or drop the key"
            )
        return {"Authorization": f"Bearer {key}"}


def _described(reply: Reply) -> str:
    return f"status {reply.status}: {excerpt(reply.text[:1000], 200)}"


# Pairwise preference: the share of its group that a member wins against.


@final
class WinRate(Reward):
    """`R_i = 1/(n-1) sum_{j != i} p(i beats j)` over the members of the batch with the same prompt, `p` a judge of two.

    The judge is a function `prefer(prompt, first, second) -> float`, the probability that the first is the better one;
    each pair is asked once, or in both orders where `both_orders` is true (judges tend to favour a place). For a win
    rate under a reward that scores members one by one, no judge is needed: write `advantage.kind = "win_rate"`. A
    member whose prompt nobody shares has no comparison and is missing.

    Example:
        >>> WinRate(function="groupwise.reward.models.judge:longer")(["a", "a", "a"], ["x", "xx", "xx"])
        [0.0, 0.75, 0.75]

    Source: Pref-GRPO, arXiv 2508.20751, section 3.
    """

    kind: Literal["win_rate"] = "win_rate"
    function: ImportPath
    """`package.module:function`, or an entry point of the group `groupwise.rewards`."""
    both_orders: bool = False
    """Ask each pair in both orders and take the mean."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the judge, by name."""

    def open(self) -> RewardFunction:
        judge = user_callable(self.function, "function", group=ENTRY_POINTS)

        def score(prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> list[float | None]:
            return self._score(judge, prompts, completions)

        return score

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts, completions, **columns)

    def _score(self, judge: Any, prompts: Sequence[Text], completions: Sequence[Any]) -> list[float | None]:
        groups: dict[str, list[int]] = {}
        for member, prompt in enumerate(prompts):
            groups.setdefault(repr(prompt), []).append(member)
        won = [0.0] * len(prompts)
        values: list[float | None] = [None] * len(prompts)
        for members in groups.values():
            for place, left_member in enumerate(members):
                for right_member in members[place + 1 :]:
                    chance = self._ask(judge, prompts[left_member], completions[left_member], completions[right_member])
                    if self.both_orders:
                        chance = (
                            chance
                            + 1
                            - self._ask(
                                judge, prompts[left_member], completions[right_member], completions[left_member]
                            )
                        ) / 2
                    won[left_member] += chance
                    won[right_member] += 1 - chance
            for member in members if len(members) > 1 else ():
                values[member] = won[member] / (len(members) - 1)
        return values

    def _ask(self, judge: Any, prompt: Text, first: Any, second: Any) -> float:
        answer = judge(prompt, first, second, **self.arguments)
        try:
            chance = as_number(answer)
        except ValueError as error:
            raise RewardError(
                f"win_rate: {self.function!r} gave {error}; return the probability that the first is better, 0 to 1"
            ) from None
        if chance is None or not 0 <= chance <= 1:
            raise RewardError(
                f"win_rate: {self.function!r} gave {excerpt(repr(answer))}; return the probability that the first is"
                " better, 0 to 1"
            )
        return chance


def longer(prompt: Text, first: Any, second: Any) -> float:
    """Returns 1 if the first completion is longer, 0.5 for equal lengths: the shortest example of a judge of pairs.

    Example:
        >>> longer("", "ab", "a")
        1.0
    """
    return 0.5 if len(first) == len(second) else float(len(first) > len(second))
