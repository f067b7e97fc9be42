"""The engines that sample: the built-in sampler, ``model.generate``, or a vLLM server, behind one interface."""

from __future__ import annotations

from groupwise.causal_lm.engine.server import open_engine
from groupwise.causal_lm.sampler import Engine

__all__ = ["Engine", "open_engine"]
