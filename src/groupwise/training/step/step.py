"""One training step, from top to bottom in the order in which it happens:

    draw prompts, sample a group of answers to each, reward every answer, compare the rewards inside each group
    (`sample_round`); then, for each update on these rollouts: plan the weights, score the answers again, compute the
    loss and its gradient (`policy_gradient`), update the weights (`_optimise`); log what happened (`train_step`).

What only some runs need is called by its name and is in the files next to this one: several rounds of sampling, the
reference and the statistics of a round (`rollouts`), gradients by cotangents and of demonstrations and measured sizes
of passes (`passes`), what is remembered of rewards (`state`).

Every process of a run makes the same step on its share of the prompts. `step.world` sums and gathers over processes;
with one process both give back what they are given.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from groupwise.domain.base import require_gradient
from groupwise.domain.protocol import CutsPasses
from groupwise.learner.local import LocalLearner
from groupwise.learner.protocol import StepNumbers
from groupwise.objective.batch import Acted
from groupwise.objective.matching import NoMatching
from groupwise.statistics import Mean, add, finish
from groupwise.streams import Streams
from groupwise.training.optimiser_config import OptimiserConfig
from groupwise.training.step import passes, rollouts
from groupwise.training.step.state import Step, ready_rewards

_NOT_FINITE = "log_prob/not_finite"


@dataclass
class Updates:
    """The outcome of the optimiser steps in one step of the loop.

    Args:
        log_ratio: `[B, T]` nats, of each decision at its last scoring; 0 where all its updates were on-policy.
        metrics: one dictionary an optimiser step, reduced over processes.
        taken, skipped, not_finite: numbers of optimiser steps by outcome.
        remarks: sentences for the people who follow the run.
    """

    log_ratio: Tensor
    metrics: list[dict[str, float]] = field(default_factory=list)
    taken: int = 0
    skipped: int = 0
    not_finite: int = 0
    remarks: list[str] = field(default_factory=list)


def train_step(step: Step) -> tuple[dict[str, float], rollouts.Collected | None, Updates]:
    """Makes one step of training.

    Returns:
        the metrics of the step, its rollouts (none in a stage that samples nothing), and its updates.
    """
    recipe, state, progress = step.recipe, step.state, step.state.progress
    policy_weight = recipe.objective.policy_weight.at(state.objective.step)
    values: dict[str, float] = {"learning_rate": recipe.optimiser.rate(progress.stage_step), "lambda_pg": policy_weight}
    if (supervised := recipe.objective.auxiliary.get("supervised")) is not None:
        values["lambda_sup"] = supervised.at(state.objective.step)
    # Draw, sample, reward, compare.
    collected = None
    if policy_weight != 0:
        state.learner.eval()
        collected = collect(step)
        values |= finish(step.world.sum_statistics(collected.statistics)) | collected.numbers
        values |= _resize_groups(step, [rewards for _, rewards in collected.earned if rewards], values["groups/flat"])
    # Plan, score, loss, update: once for each minibatch of each pass over the rollouts.
    state.learner.train()
    with progress.timed("update" if recipe.samples else "warm_up"):
        updates = update_policy(step, collected)
    if isinstance(step.domain, CutsPasses):
        passes.agree_on_passes(step.domain, progress, step.world)
    reference_outcome, measured = _move_reference(step, updates) if updates.taken else ("", {})
    values |= measured
    # Log.
    if step.measures_pass_size:
        values["micro_batch_members"] = progress.micro_batch_members
    for name in dict.fromkeys(name for metrics in updates.metrics for name in metrics):
        # The mean over the optimiser steps that have the metric.
        numbers = [metrics[name] for metrics in updates.metrics if name in metrics]
        values[name] = sum(numbers) / len(numbers)
    values |= {f"updates/{name}": getattr(updates, name) for name in ("taken", "skipped", "not_finite")}
    if state.reference.present:
        values |= {f"reference/{name}": float(reference_outcome == name) for name in ("mixed", "refused")}
        values["reference/steps_since_mixed"] = progress.step + 1 - progress.reference_mixed
        if state.reference.holds_weights:
            values["reference/distance"] = state.reference.distance()
    if collected is not None:
        values["epoch"] = progress.num_drawn / step.domain.num_prompts
        values |= {f"settings/{name}": value for name, value in collected.samples.settings.items()}
    return values, collected, updates


def collect(step: Step) -> rollouts.Collected:
    """Samples until the batch is full: one round, or several where groups without a comparison are replaced.

    An admission that resamples fills the batch with the first admitted groups in the order in which they were drawn,
    whatever the number of processes; other admissions keep every group and mark those that do not train.
    """
    world, admission = step.world, step.objective.admission
    num_groups = step.recipe.train.prompts_per_step
    rounds: list[rollouts.Collected] = []
    admitted: list[int] = []
    num_drawn, num_compared = 0, 0
    for number in range(admission.rounds):
        num_prompts = rollouts.num_prompts_to_draw(num_groups, len(admitted), num_drawn) if number else num_groups
        rounds.append(sample_round(step, number, num_drawn, num_prompts))
        num_drawn += num_prompts
        batch = rounds[-1].batch
        assert batch is not None
        chosen = zip(rounds[-1].places, batch.admitted.tolist(), strict=True)
        groups = sorted({place for place, is_admitted in chosen if is_admitted})
        pairs = int((torch.bincount(batch.prompt[batch.sampled]) > 1).sum())
        processes = world.gather((groups, batch.state.running.model_dump(), pairs))
        if world.size > 1:
            rollouts.check_running(step.objective, [running for _, running, _ in processes])
        admitted += [place for places, _, _ in processes for place in places]
        num_compared = sum(pairs for _, _, pairs in processes)
        if not admission.resamples or len(admitted) >= num_groups:
            break
    numbers = {"num_rounds": float(len(rounds)), "num_prompts_drawn": float(num_drawn)}
    numbers["group_size"] = float(step.group_size)
    for part in rounds:
        for name, value in part.samples.numbers.items():
            numbers[f"sampling/{name}"] = numbers.get(f"sampling/{name}", 0.0) + value
    memory = step.state.memory
    earned = [entry for part in rounds for entries in world.gather(part.earned) for entry in entries]
    numbers |= memory.add(earned)
    if step.rewards is not None and step.rewards.follows:
        numbers |= memory.follow(step.rewards, [part.samples for part in rounds], world)
    whole = rollouts.admitted_groups(step, rounds, admitted) if admission.resamples else rounds[0]
    remarks = [remark for part in rounds for remark in part.remarks]
    adaptive, first = step.recipe.train.adaptive_sampling, step.state.progress.stage_step == 0
    if first and adaptive is not None and not adaptive.separates(rewards for _, rewards in earned):
        remarks.append(
            f"train.adaptive_sampling.threshold = {adaptive.threshold:g} has all rewards of this step on one side: it"
            " says nothing of a prompt, and prompts are ranked by the spread of their rewards until it does"
        )
    remarks += whole.remarks if admission.resamples else []
    if not admission.resamples and step.objective.advantage.group_baseline and not num_compared:
        assert whole.batch is not None
        whole = replace(whole, batch=replace(whole.batch, admitted=torch.zeros_like(whole.batch.admitted)))
        remarks.append(
            "no group has two members with all their rewards: nothing is compared, and the step has no policy term"
        )
    statistics = add([part.statistics for part in rounds])
    batch = None if whole.batch is None else whole.batch.to(whole.samples.mask.device)
    return replace(whole, batch=batch, earned=earned, statistics=statistics, numbers=numbers, remarks=remarks)


def _resize_groups(step: Step, groups: Sequence[Sequence[float]], flat_share: float) -> dict[str, float]:
    """Lets a dynamic group size follow the rewards of a step's groups, of all processes."""
    rule, progress = step.recipe.train.dynamic_group_size, step.state.progress
    if rule is None or not groups:
        return {}
    mean_range = sum(max(rewards) - min(rewards) for rewards in groups) / len(groups)
    progress.widest_range = max(progress.widest_range, mean_range)
    narrow_share = rule.narrow_share(groups, progress.widest_range)
    step.group_size = rule.next(step.group_size, groups, progress.widest_range, flat_share)
    progress.group_size = step.group_size
    return {"groups/narrow": narrow_share}


def sample_round(step: Step, number: int, first_place: int, count: int) -> rollouts.Collected:
    """Draws prompts, samples a group for each, rewards its members and compares them.

    Args:
        number: of the round in the step.
        first_place: the place of its first group in the step.
        count: the number of prompts, over all processes.
    """
    domain, state, objective, progress = step.domain, step.state, step.objective, step.state.progress
    # Draw. Every process draws the same prompts and takes its share of them; one without a share samples the first
    # prompt, so that its records have the right form, and drops the members below.
    rule = step.recipe.train.adaptive_sampling or step.recipe.train.worst_first
    counters = (domain.num_prompts, progress.num_drawn, count)
    drawn, progress.num_drawn = (
        draw_prompts(step.streams, *counters) if rule is None else rule.draw(step.streams, state.memory.last, *counters)
    )
    share = step.world.share(count)
    asked = [drawn[place] for place in share] or drawn[:1]
    prompts = domain.prompts(asked)
    # In a small training set a later round may draw a prompt again; the round is part of the key of its draws.
    streams = step.streams if number == 0 else Streams(step.streams.seed("round", number))

    # Sample.
    with progress.timed("sampling"):
        samples = rollouts.sample_groups(step, prompts, streams)

    # Reward.
    with progress.timed("rewards"):
        if step.rewards is not None:
            ready_rewards(step.rewards, state, step.recipe, domain.num_prompts)
        rewards = domain.reward(samples)

    # Add what else the loss will read of these members.
    if not isinstance(objective.matching, NoMatching):
        samples = rollouts.noised_again(step, samples, streams)
    if step.recipe.compares:
        samples = rollouts.beside_reference(step, samples)
    remarks: list[str] = []
    if step.measures_pass_size:
        with progress.timed("update"):
            remarks += passes.fit_micro_batch(step, samples, samples.mask.sum(1), objective.requires)
    if domain.samples_remotely:
        samples = rollouts.scored_by_trainer(step, samples)
    if "reference_log_prob" in objective.requires_rollouts:
        samples = rollouts.scored_by_reference(step, samples)

    # Compare: advantages from the rewards inside each group, and which groups may train.
    filler = samples
    if not share:
        samples = samples.select(torch.zeros(0, dtype=torch.long, device=samples.mask.device))
        rewards = replace(rewards.select([]), events=())
    samples = replace(samples, place=samples.group + share.start + first_place, rewards=rewards)
    on_cpu = rollouts.on_cpu(samples)
    places = on_cpu.place.tolist()
    prompt_places = [drawn[place - first_place] for place in places]
    if state.memory.size:
        history = state.memory.past(prompt_places)
        samples = replace(samples, reward_history=history.to(samples.mask.device))
        on_cpu = replace(on_cpu, reward_history=history)
    batch = rollouts.compared(step, on_cpu)
    totals = rewards.total(objective.partial_rewards, places)
    earned: dict[int, list[float]] = {place: [] for place in prompt_places}
    for place, total in zip(prompt_places, totals, strict=True):
        if total is not None:
            earned[place].append(total)
    statistics = rollouts.round_statistics(on_cpu, batch, totals, density=domain.density)
    return rollouts.Collected(samples, batch, filler, [*earned.items()], statistics, places=places, remarks=remarks)


def draw_prompts(streams: Streams, num_prompts: int, drawn: int, count: int) -> tuple[list[int], int]:
    """Draws the next `count` prompts, all different.

    Epoch `e` is the permutation keyed by `("prompts", e)`. A draw never crosses an epoch's end: where too few prompts
    of an epoch remain, they are left out (different ones in every epoch).

    Args:
        num_prompts: size of the training set.
        drawn: the counter that the last draw returned, 0 at first.
        count: the number of prompts, at most `num_prompts`.

    Returns:
        places in the training set, and the counter for the next draw.

    Example:
        >>> first, drawn = draw_prompts(Streams(0), 5, 0, 2)
        >>> second, drawn = draw_prompts(Streams(0), 5, drawn, 2)
        >>> len({*first, *second}), drawn
        (4, 4)
        >>> third, drawn = draw_prompts(Streams(0), 5, drawn, 2)
        >>> drawn
        7
    """
    assert 0 < count <= num_prompts
    epoch, place = divmod(drawn, num_prompts)
    if place + count > num_prompts:
        epoch, place = epoch + 1, 0
    order = streams.numpy("prompts", epoch).permutation(num_prompts)
    return [int(index) for index in order[place : place + count]], epoch * num_prompts + place + count


def update_policy(step: Step, collected: rollouts.Collected | None) -> Updates:
    """Makes all optimiser steps of one step of the loop: `updates_per_batch` passes over the rollouts, each in
    `minibatches` parts of whole groups; without rollouts one optimiser step of the auxiliary terms alone. Counts them
    by their outcome, with a remark on those that were left out.
    """
    updates = Updates(torch.zeros(0) if collected is None else torch.zeros_like(collected.samples.old_log_prob))
    progress, train = step.state.progress, step.recipe.train
    if collected is None or collected.batch is None:
        _optimise(step, None, None, updates)
    else:
        step.state.objective = collected.batch.state
        for number in range(train.updates_per_batch):
            for rows in [None] if train.minibatches == 1 else _minibatches(step, collected, number):
                _optimise(step, collected, rows, updates)
    progress.num_updates += updates.taken
    progress.num_skipped += updates.skipped
    progress.num_not_finite += updates.not_finite
    if updates.not_finite:
        updates.remarks.append(
            f"{updates.not_finite} of {len(updates.metrics)} updates had a gradient that was not finite and were left"
            " out"
        )
    skipped_before = progress.skipped_in_a_row
    progress.skipped_in_a_row = 0 if updates.taken else skipped_before + updates.skipped
    if progress.skipped_in_a_row >= train.patience > progress.skipped_in_a_row - updates.skipped:
        updates.remarks.append(
            f"{progress.skipped_in_a_row} updates in a row had nothing to learn from (every group's rewards were equal"
            " and no other term is active); try easier or harder prompts, a reward with more levels, or a higher"
            " temperature"
        )
    return updates


def _minibatches(step: Step, collected: rollouts.Collected, number: int) -> list[Tensor]:
    """Returns this process's rows for each minibatch. Groups are dealt by their place in the step, so the number of
    processes makes no difference.
    """
    place, minibatches = collected.samples.place, step.recipe.train.minibatches
    places = sorted({place for places in step.world.gather(place.unique().tolist()) for place in places})
    order = step.streams.numpy("minibatches", step.state.progress.step, number).permutation(len(places))
    bounds = [round(bucket * len(places) / minibatches) for bucket in range(minibatches + 1)]
    dealt = [[places[index] for index in order[start:end]] for start, end in itertools.pairwise(bounds)]
    return [torch.isin(place, place.new_tensor(chosen)).nonzero()[:, 0] for chosen in dealt if chosen]


def _optimise(step: Step, collected: rollouts.Collected | None, rows: Tensor | None, updates: Updates) -> None:
    """Makes one optimiser step: accumulates the gradient of every term, sums it over processes, and lets the learner
    clip it and step. A gradient that is 0 or not finite changes no weight.
    """
    recipe, state, world, learner = step.recipe, step.state, step.world, step.state.learner
    on_policy = updates.taken == 0 and not step.domain.samples_recorded
    learner.zero_gradients()
    accumulate: list[Callable[[], passes.PassStatistics]] = []
    if collected is not None:
        accumulate.append(lambda: policy_gradient(step, collected, rows, updates.log_ratio, on_policy=on_policy))
    if "supervised" in recipe.objective.auxiliary:
        demonstrations = passes.step_demonstrations(step, len(updates.metrics))
        if demonstrations is not None:
            if step.measures_pass_size:
                counts = demonstrations.auxiliary_count["supervised"]
                updates.remarks += passes.fit_micro_batch(step, demonstrations, counts, frozenset({"log_prob"}))
            accumulate.append(lambda: passes.supervised_gradient(step, demonstrations))
    statistics = passes.retrying(step, accumulate, updates.remarks.append)
    if world.size > 1:
        learner.reduce_gradients(world)
    pull = recipe.train.l2_to_reference if recipe.samples else 0.0
    pull_loss = state.reference.pull(pull) if pull else None
    config, max_grad_norm = recipe.optimiser, recipe.train.max_grad_norm
    rate = config.rate(state.progress.stage_step)
    # Only AdamW takes the other numbers.
    adamw = [config.beta1, config.beta2, config.eps, config.weight_decay] if isinstance(config, OptimiserConfig) else []
    gradient_norm = learner.step(StepNumbers(rate, *adamw, max_grad_norm=max_grad_norm))
    metrics = finish(world.sum_statistics(add(statistics))) | {"grad_norm": gradient_norm}
    if pull_loss is not None:
        metrics |= {"loss_l2": pull_loss, "loss": metrics.get("loss", 0.0) + pull_loss}
    if num_not_finite := metrics.get(_NOT_FINITE, 0.0):
        updates.remarks.append(
            f"{num_not_finite:.0f} decisions had a log-prob under the policy that was not finite and were left out"
        )
    # An update in which every decision is left out as not finite has the gradient 0.
    if not math.isfinite(gradient_norm) or (num_not_finite and gradient_norm == 0.0):
        updates.not_finite += 1
        metrics = {_NOT_FINITE: num_not_finite} if num_not_finite else {}
    elif gradient_norm == 0.0:
        # Every group was flat and no other term is active: a step would only apply the optimiser's momentum and decay.
        updates.skipped += 1
    else:
        updates.taken += 1
        if isinstance(learner, LocalLearner):
            metrics |= learner.step_metrics
        if (average := recipe.train.weight_average) is not None:
            state.progress.average_step += 1
            state.average.mix(1 - average.decay_after(state.progress.average_step))
    state.objective = recipe.objective.observe(state.objective, metrics)
    updates.metrics.append(metrics)


def policy_gradient(
    step: Step, collected: rollouts.Collected, rows: Tensor | None, log_ratio: Tensor, *, on_policy: bool
) -> passes.PassStatistics:
    """Accumulates the gradient of the policy's terms over some members and returns the statistics of its passes.

    There are two ways to the same gradient. One scores with gradient, micro-batch by micro-batch, as below. The other
    (`by_cotangents`) computes the loss's gradient by each scored field before the model runs. In the first update the
    fields that the sampler recorded allow it, and no scoring is needed; the scope `batch`, and a learner that does not
    differentiate in this process, require it.

    Args:
        rows: `[R]`, the places of the members in `collected.samples`; `None` takes all.
        log_ratio: `[B, T]`, which receives how far the policy has moved on each decision.
        on_policy: whether this is the first update on the rollouts.
    """
    assert collected.batch is not None
    objective, batch, recorded = step.objective, collected.batch, collected.samples.recorded
    if rows is None:
        rows = torch.arange(len(log_ratio), device=log_ratio.device)
    else:
        batch, recorded = batch.select(rows), None if recorded is None else recorded.select(rows)
    # Plan: the weight of every decision, from counts over all processes.
    plan = objective.plan(batch, step.state.objective, step.world.sum, not_finite="counted")
    statistics: passes.PassStatistics = [{"on_policy_share": Mean.ratio(float(on_policy), 1.0)}]
    # Where a process has no member, it joins the passes of the others with one that it does not train on.
    samples = collected.samples if len(collected.samples) else collected.filler
    if on_policy and recorded is not None and objective.requires <= set(recorded.tensors()) and not plan.auxiliary:
        return statistics + passes.by_cotangents(step, samples, rows, plan, recorded, on_policy=on_policy)
    if objective.scope == "batch" or not step.state.learner.differentiates:
        scored = passes.score_without_gradient(step, samples, rows, objective.requires)
        _note_log_ratio(log_ratio, rows, scored.log_prob, batch.acted)
        return statistics + passes.by_cotangents(step, samples, rows, plan, scored, on_policy=on_policy)
    # With the policy term alone a member of advantage 0 has no gradient, unless the term pulls back to the sampler.
    alive = torch.arange(len(plan), device=plan.acted.mask.device)
    if not (objective.matching.pulls or plan.beta != 0 or plan.entropy != 0 or plan.auxiliary):
        alive = (plan.acted.mask & (plan.advantage != 0)).any(1).nonzero()[:, 0]
    lengths = batch.acted.mask.sum(1)
    # The statistics of the loss are over the members that are scored.
    statistics.append({"scored_share": Mean.ratio(len(alive), len(plan))})
    for chosen in step.passes(lengths[alive]):
        if chosen is None:
            passes.join_pass(step, samples, objective.requires)
            continue
        # Score the members of this pass under the live policy, and add the gradient of their part of the loss.
        members = alive[chosen]
        scored = step.domain.score(samples, rows[members], objective.requires)
        require_gradient(step.domain, scored)
        loss = objective.loss(scored, plan.select(members))
        if loss.total.requires_grad:
            loss.backward()
        elif step.sharded:
            torch.autograd.backward([scored.log_prob], [torch.zeros_like(scored.log_prob)])
        scored, acted = scored.detach(), batch.acted
        _note_log_ratio(log_ratio, rows[members], scored.log_prob, acted.select(members))
        passed = passes.pass_statistics(scored, acted, members, lengths[members], on_policy=on_policy)
        statistics.append({**loss.statistics, **passed})
    return statistics


def _note_log_ratio(log_ratio: Tensor, rows: Tensor, log_prob: Tensor, acted: Acted) -> None:
    log_ratio[rows] = torch.where(acted.mask, log_prob - acted.old_log_prob, 0.0).to(log_ratio.dtype)


def _move_reference(step: Step, updates: Updates) -> tuple[str, dict[str, float]]:
    """Updates the reference; returns `mixed`, `refused`, or an empty string if nothing was done, and what was measured
    for it.
    """
    progress, reference = step.state.progress, step.state.reference
    progress.reference_step += 1
    score = None if progress.score is None else step.recipe.train.signed_score(progress.score)
    reference_score, measured = None, {}
    if reference.config.measures(progress.reference_step):
        score = step.measure()
        with reference.active():
            reference_score = step.measure()
        scores = {"policy_score": score, "score": reference_score}
        sign = step.recipe.train.signed_score(1.0)
        measured = {f"reference/{name}": sign * value for name, value in scores.items() if value is not None}
    outcome = reference.observe(progress.reference_step, score, reference_score)
    if outcome == "mixed":
        progress.reference_mixed = progress.step + 1
    if outcome == "refused":
        updates.remarks.append("the reference was not mixed with the policy, whose score is below the reference's own")
    return outcome, measured
