"""Readers of words: Tesseract, RapidOCR, and a small network that is trained here; a reward and a loss made of them."""

from __future__ import annotations

from groupwise.domain.restoration.word_reader.reading import Reading
from groupwise.domain.restoration.word_reader.trained import reading_loss

__all__ = ["Reading", "reading_loss"]
