"""Knights and Knaves: format and answer of a puzzle in which everybody is one of two kinds."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

from groupwise.reward.base import Noted, Reward, Value
from groupwise.reward.completions import Text, completion_text, excerpt
from groupwise.reward.texts.answers import Extract
from groupwise.reward.texts.style import follows_tags

# The kinds of people in the puzzles of reasoning-gym, which draws one pair a puzzle.
_ROLES = "knight|knave|pioneer|laggard|saint|sinner|hero|villain|angel|devil|altruist|egoist|sage|fool"
_ROLE = re.compile(rf"\b(?:{_ROLES})", re.IGNORECASE)
# A name has at most 64 letters. Without that bound, a long word would be read again from each of its letters.
# "knight/knave" is the instruction copied, not an answer: a slash ends the match.
_CLAIM = re.compile(
    rf"([^\W\d_][\w'-]{{0,63}})\s*+(?:\bis\s++(?:an?\s++)?|[:=]\s*+(?:an?\s++)?)({_ROLES})\b(?!\s*/)", re.IGNORECASE
)


def roles_by_name(text: str) -> dict[str, str] | None:
    """Reads the role of every named person; None where the text gives a person two roles.

    Example:
        >>> roles_by_name("(1) Zoey is a knight\\n(2) Avery is a KNAVE")
        {'zoey': 'knight', 'avery': 'knave'}
        >>> roles_by_name("Zoey is a knight. Zoey is a knave.") is None
        True
        >>> roles_by_name("Zoey is a knight/knave")
        {}
    """
    role_by_name: dict[str, str] = {}
    for name, role in _CLAIM.findall(text):
        if role_by_name.setdefault(name.casefold(), role.casefold()) != role.casefold():
            return None
    return role_by_name


@final
class KnightsAndKnaves(Reward):
    """Format plus answer, the rule of Logic-RL (arXiv 2502.14768) that source 000 trains with.

        format   +1 where the completion is <think>...</think> <answer>...</answer>, each tag once; -1 elsewhere
        answer   +2 everybody right; -1.5 somebody wrong; -2 not exactly one claim for everybody, or the format broken

    So a completion earns 3, -0.5, -1 or -3. As there, an answer must name as many roles as there are people, so that
    nobody hedges by claiming both. Two differences: nothing but spaces may stand outside the tags, where Logic-RL looks
    at the tags alone; and `Zoey: knight` is read as well as `Zoey is a knight`, with any of the pairs of roles that
    reasoning-gym draws.

    Example:
        >>> texts = [
        ...     f"<think>.</think><answer>{claim}</answer>" for claim in ("Al is a knight", "Al is a knave", "?")
        ... ] + ["?"]
        >>> KnightsAndKnaves()([""] * 4, texts, answer=["Al is a knight."] * 4)
        [3.0, -0.5, -1.0, -3.0]
    """

    kind: Literal["knights_and_knaves"] = "knights_and_knaves"
    column: str = "answer"
    """The data column with the expected answer, such as `Zoey is a knight, and Avery is a knave.`"""
    prefilled: str = ""
    """Text that the prompt already wrote at the start of the answer, such as `<think>`."""

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def ends(self) -> tuple[float, float]:
        return (-3.0, 3.0)

    def unreadable(self, row: Mapping[str, Any]) -> str | None:
        expected = row.get(self.column)
        if expected is None or roles_by_name(str(expected)):
            return None
        return (
            f"column {self.column!r} holds {excerpt(repr(expected))}, which does not say who is what; write it as 'Zoey"
            " is a knight, and Avery is a knave.'"
        )

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Value]:
        return [
            None
            if expected_answer is None
            else self._score(self.prefilled + completion_text(completion), expected_answer)
            for completion, expected_answer in zip(completions, columns[self.column], strict=True)
        ]

    def _score(self, text: str, expected_answer: Any) -> Value:
        expected = roles_by_name(str(expected_answer))
        if not expected:
            return Noted(None, "gold_unparsable", self.unreadable({self.column: expected_answer}) or "")
        if not follows_tags(text, ("think", "answer")):
            return -3.0
        answer = Extract(tag="answer")(text) or ""
        claimed = roles_by_name(answer)
        if claimed is None or len(_ROLE.findall(answer)) != len(expected) or not set(expected) <= set(claimed):
            return -1.0
        return 3.0 if all(claimed[name] == role for name, role in expected.items()) else -0.5
