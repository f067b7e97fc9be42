"""Aggregation: mask -> weights `w [B, T]`, with global counts of the update, so that micro-batches and processes sum to
the whole.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.objective.aggregate.callable import CallableAggregation
from groupwise.objective.aggregate.fixed_length import FixedLength
from groupwise.objective.aggregate.member_mean import MemberMean
from groupwise.objective.aggregate.member_sum import MemberSum
from groupwise.objective.aggregate.prompt_mean import PromptMean
from groupwise.objective.aggregate.token_mean import TokenMean

__all__ = ["Aggregation", "CallableAggregation", "FixedLength", "MemberMean", "MemberSum", "PromptMean", "TokenMean"]

Aggregation = Annotated[
    TokenMean | MemberMean | MemberSum | FixedLength | PromptMean | CallableAggregation, Field(discriminator="kind")
]
