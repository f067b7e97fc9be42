"""Answers as the VQA challenge compares them: its official normalisation, oddities included."""

from __future__ import annotations

import re

_ARTICLES = frozenset({"a", "an", "the"})
_NUMBERS = {
    "zero": "0",
    "one": "1",
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
}
_NUMBERS["none"] = "0"
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
# As published: the lookbehind is mistyped and always holds, so that every full stop goes which no digit follows.
_FULL_STOP = re.compile(r"(?!<=\d)(\.)(?!\d)")
_DIGIT_COMMA = re.compile(r"(\d)(,)(\d)")
_MOST_FULL_STOPS = 32

_WORDS = (
    "ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've"
    " he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't"
    " not've o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll"
    " somebody's someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd"
    " there'd've there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll"
    " what're what's what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's"
    " won't would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've"
)


def _one_apostrophe_less(word: str) -> list[str]:
    return [word[:place] + word[place + 1 :] for place, letter in enumerate(word) if letter == "'"]


# The published table restores a contraction that lacks one apostrophe; its one entry the other way round is a slip that
# scores depend on.
_CONTRACTIONS = {short: word for word in _WORDS.split() for short in _one_apostrophe_less(word)} | {
    "somebody'd": "somebodyd"
}


def normalise(answer: str) -> str:
    """Normalises an answer to the form in which the VQA challenge compares answers.

    Punctuation goes (or becomes a space, where it joins two words), then case, articles, number words up to ten, and
    missing apostrophes.

    Returns:
        its normal form; empty for a text of articles and punctuation alone.

    Example:
        >>> [normalise(text) for text in ("The Two dogs.", "dont know", "T-shirt", "1,000", "3.5")]
        ['2 dogs', "don't know", 't shirt', '1000', '3.5']

    Source: Antol et al. 2015, VQA: Visual Question Answering, arXiv 1505.00468, and the evaluation code published with
    it. It reproduces the quirks of that code, because published scores contain them: a comma between digits anywhere
    makes other punctuation vanish instead of becoming a space, "i'm" without its apostrophe stays "im", and
    "somebody'd" loses its own.
    """
    text = answer.replace("\n", " ").replace("\t", " ").strip()
    grouped = _DIGIT_COMMA.search(text) is not None
    bare = text
    for mark in _PUNCTUATION:
        beside_space = f"{mark} " in text or f" {mark}" in text
        bare = bare.replace(mark, "" if beside_space or grouped else " ")
    bare = _FULL_STOP.sub("", bare, count=_MOST_FULL_STOPS)
    words = [_NUMBERS.get(word, word) for word in bare.lower().split()]
    return " ".join(_CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)
