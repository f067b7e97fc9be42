"""Refusals of what an objective needs and TRL's trainer cannot give: raised before the first step, each with its reason
and what to write.
"""

from __future__ import annotations

from collections.abc import Iterator

from trl.trainer.grpo_config import GRPOConfig

from groupwise.objective import Objective

SUPPLIES = frozenset({"log_prob", "entropy", "score_norm"})
"""Fields of `Scored` that TRL's fused head gives."""


def refusals(objective: Objective, args: GRPOConfig, own_sampler: bool) -> Iterator[str]:
    """Yields a sentence for every reason why this objective cannot run under these arguments of TRL.

    Args:
        objective: a valid objective.
        args: the arguments of TRL's trainer.
        own_sampler: true where a `rollout_func` samples in TRL's place.
    """
    if not objective.matching.neutral:
        yield (
            f"matching.kind = {objective.matching.kind!r} learns from noised copies of images, and TRL samples tokens;"
            " write matching.kind = 'none', or choose a method that reads log-probs"
        )
    for name in sorted(objective.requires - SUPPLIES):
        alternative = (
            "write divergence.kind = 'k3_unbiased'" if name == "exact_divergence" else "write ratio.kind = 'token'"
        )
        yield (
            f"the objective reads Scored.{name}, and a language model in TRL gives only {', '.join(sorted(SUPPLIES))};"
            f" {alternative}"
        )
    if "step_size" in objective.requires_rollouts:
        yield (
            "the objective reads the time step of a transition (step_size), and TRL samples tokens; leave"
            " credit.inverse_step out"
        )
    if "reward_history" in objective.requires_rollouts:
        yield (
            f"advantage.kind = {objective.advantage.kind!r} remembers a prompt's earlier rewards, which TRL does not"
            " keep; write another advantage.kind"
        )
    for name in sorted(objective.auxiliary):
        yield f"auxiliary.{name} needs data that TRL's trainer does not draw; leave it out, or train with groupwise"
    if objective.admission.resamples:
        yield (
            f"admission.kind = {objective.admission.kind!r} draws further prompts until the batch is full, and TRL's"
            " sampler draws a fixed number; write admission.kind = 'informative' (flat groups do not train, the batch"
            " is not filled up)"
        )
    recorded = args.use_vllm or own_sampler
    if objective.correction.kind != "none" and not recorded:
        yield (
            f"correction.kind = {objective.correction.kind!r} needs the log-probs of another sampler, and TRL samples"
            " here with the model itself; write correction.kind = 'none', use_vllm = True, or a rollout_func that"
            " returns logprobs"
        )
    if objective.trust.kind == "dppo" and not recorded and (cutting_settings := _cutting_settings(args)):
        yield (
            f"trust.kind = 'dppo' is anchored to what really sampled, and with {', '.join(cutting_settings)} TRL does"
            " not say what that was; sample from the whole distribution, or write use_vllm = True"
        )
    num_local_members = args.per_device_train_batch_size * int(args.steps_per_generation or 0)
    if objective.aggregation.kind == "prompt_mean" and num_local_members % int(args.num_generations or 1):
        yield (
            f"aggregation.kind = 'prompt_mean' needs whole groups on a process, and {num_local_members} members a"
            f" process are cut inside a group of {args.num_generations}; write per_device_train_batch_size *"
            " steps_per_generation as a multiple of num_generations"
        )


def passes(args: GRPOConfig) -> int:
    """Counts the micro-batches that a process trains on one generation, over all passes."""
    return int(args.steps_per_generation or 0) * args.num_iterations


def _cutting_settings(args: GRPOConfig) -> list[str]:
    """Lists the settings under which TRL's own sampler does not draw from the whole distribution."""
    plain = {
        "top_p": (1.0, None),
        "top_k": (0, None),
        "min_p": (None, 0.0),
        "repetition_penalty": (1.0,),
        "generation_kwargs": (None, {}),
    }
    return [f"{key} = {getattr(args, key)!r}" for key, values in plain.items() if getattr(args, key) not in values]


def remarks(objective: Objective, args: GRPOConfig) -> Iterator[str]:
    """Yields a sentence for every legal setting that is rarely intended, and says which key wins."""
    aggregation = objective.aggregation
    if aggregation.kind == "fixed_length" and aggregation.length != args.max_completion_length:
        yield (
            f"aggregation.length = {aggregation.length} is the divisor, not max_completion_length ="
            f" {args.max_completion_length}; write 'aggregation.length': {args.max_completion_length} for TRL's"
        )
    if args.use_vllm and objective.correction.kind == "none" and objective.trust.kind != "dppo":
        yield (
            "the mismatch between vLLM and the model is not corrected; write the method with an overlay: +tis, +seq_mis"
            " (TRL's own default), +icepop, ..."
        )
    if args.sync_ref_model and not objective.needs_reference:
        yield (
            "sync_ref_model has no effect, because the objective has no reference; write a divergence, or"
            " sync_ref_model = False"
        )
