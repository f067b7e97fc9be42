"""A trial of the built-in sampler on a model: the log-probs that it records must be those that the scorer computes for
the same tokens.
"""

from __future__ import annotations

from groupwise.causal_lm import sampler
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.draw import DistributionError
from groupwise.causal_lm.scoring import score
from groupwise.processes import is_out_of_memory

_PROMPTS = ((0, 1, 2, 3, 4), (5, 6))
"""Prompts of two lengths, so that one is padded."""
_NUM_TOKENS = 3


def why_not_sampled(backbone: Backbone) -> str | None:
    """Tries the built-in sampler on a few tokens. It fails, or records other log-probs, where a model family carries
    more from token to token than keys and values, or in another form.

    Returns:
        what went wrong; `None` where the sampler serves the model.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.scratch import character_tokenizer, small_model
        >>> why_not_sampled(
        ...     Backbone(small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0))
        ... )
    """
    if (backbone.max_positions or 64) < len(_PROMPTS[0]) + _NUM_TOKENS:
        return None
    prompts = [[token % backbone.config.vocab_size for token in prompt] for prompt in _PROMPTS]
    try:
        drawn = sampler.sample(backbone, prompts, 2, SamplingConfig(max_new_tokens=_NUM_TOKENS), range(4), eos=())
        with backbone.evaluating():
            rescored = score(
                backbone, [prompt for prompt in prompts for _ in range(2)], drawn.tokens, drawn.mask, pack=False
            )["log_prob"]
    except DistributionError:
        # Weights that give no distribution are named where a member is drawn.
        return None
    except Exception as error:  # a family's code raises errors of any kind on another cache than its own
        if is_out_of_memory(error):
            raise
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    differences = (rescored - drawn.log_prob)[drawn.mask].abs()
    # Half precision rounds a log-prob by tenths where a model is large.
    half = next(backbone.model.parameters()).dtype.itemsize < 4
    agrees = bool(differences.mean() <= 0.5) if half else bool(differences.max() <= 0.05)
    if agrees:
        return None
    largest = float(differences.max())
    return f"its log-probs are up to {largest:.2g} nats from those that scoring computes for the same tokens"
