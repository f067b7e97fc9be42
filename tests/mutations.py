"""Small mistakes in the mathematics, each in one line of the source: the tests have to see every one.

    python tests/mutations.py [--only NAME ...] [--all]

Every mutation is made in a copy of the project, and there the tests that should see it run until one fails: the file
that is named beside it, and where that sees nothing, the whole folder of that file. With `--all` every test of
`make test` that follows. Printed is the test that saw it first; a mutation that none saw ends the program with 1. So
does one whose text is not in the source any more, which has to be written anew.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "tests", "docs", "examples", "benchmarks")

# `# name: the mistake`, the file of the source and the test that should see it, the text there, the text in its place.
TABLE = r"""
# population_std: the population's standard deviation, where the unbiased one is asked for
objective/advantage.py < objective/test_advantage.py
- rewards.std(self.ddof)
+ rewards.std(0)

# missing_counted: a member without a reward counts in the mean of its group
objective/batch.py < objective/test_grouped.py
- mean=self.sum(self.value) / size.clamp(min=1)
+ mean=self.sum(self.value) / self.index.bincount()[self.index, None]

# leave_one_out_scale: the factor of leave-one-out is upside down
objective/advantage.py < objective/test_advantage.py
- rewards.size / (rewards.size - 1).clamp(min=1)
+ (rewards.size - 1) / rewards.size.clamp(min=1)

# local_moments: the moments of a batch are those of one process
objective/batch.py < objective/test_advantage.py
- count, total = self.reduce(torch.stack([self.present.double().sum(), present_values.sum()]))
+ count, total = torch.stack([self.present.double().sum(), present_values.sum()])

# one_sided_bound: advantages are bounded from above only
objective/decisions.py < objective/test_trust.py
- advantage.clamp(-clip, clip)
+ advantage.clamp(max=clip)

# missing_is_good: a member that lacks a reward counts with the sum of the others
objective/batch.py < objective/test_prepare.py
- present = present & ~lacking
+ present = present

# missing_in_divisor: a member that lacks a reward stays in the divisor
objective/objective.py < objective/test_left_out.py
- admitted=groups[rewards.index] & sampled,
+ admitted=groups[rewards.index],

# at_the_threshold: a reward at the threshold is a success
objective/advantage.py < objective/test_admission.py
- 0, rewards.index, ((rewards.value > self.threshold)
+ 0, rewards.index, ((rewards.value >= self.threshold)

# dropped_groups_train: the decisions of groups that are not admitted stay in the update
objective/objective.py < objective/test_plan.py
- mask=logical_and(update.acted.mask, update.admitted[:, None])
+ mask=update.acted.mask

# padding_trains: the rows that fill up a micro-batch have a weight
objective/batch.py < objective/test_plan.py
- weight=torch.where((rows < 0)[:, None], 0.0, weight)
+ weight=weight

# local_divisor: each process divides by its own decisions
objective/decisions.py < objective/test_grouped.py
- self.reduce(self.length.sum() if where is self.mask else where.sum(dtype=torch.float64))
+ (self.length.sum() if where is self.mask else where.sum(dtype=torch.float64))

# masked_counted: the token mean divides by masked tokens too
objective/aggregate.py < objective/test_aggregate.py
- counts.total(counts.mask)
+ counts.total(counts.mask | True)

# dropped_members_counted: the member mean counts the members of dropped groups
objective/aggregate.py < objective/test_aggregate.py
- counts.spread(1 / (counts.length.clamp(min=1) * counts.total(counts.admitted)))
+ counts.spread(1 / (counts.length.clamp(min=1) * counts.total(counts.real)))

# constant_that_moves: the constant divisor shrinks with the dropped groups
objective/aggregate.py < objective/test_aggregate.py
- counts.total(counts.real)
+ counts.total(counts.admitted)

# masked_have_a_place: masked tokens count in a decision's place along its member
objective/decisions.py < objective/test_decisions.py
- (self.mask.cumsum(1, dtype=torch.int32) - 1)
+ (torch.ones_like(self.mask).cumsum(1, dtype=torch.int32) - 1)

# ema_first: the gradient of the moving average takes the wrong start
objective/ratio.py < objective/test_smoothing.py
- if ctx.starts_at_first:
+ if not ctx.starts_at_first:

# gspo_padded: GSPO's mean goes over the padded length
objective/ratio.py < objective/test_ratio.py
- decisions.mean(log_ratio)
+ decisions.masked(log_ratio).mean(1, keepdim=True)

# gspo_token_detach: the level of GSPO-token keeps its gradient
objective/decisions.py < objective/test_ratio.py
- stop_gradient(log_level) + decisions.log_prob
+ log_level + decisions.log_prob

# clips_every_sign: a bad member's gradient is cut above the region too
objective/decisions.py < objective/test_trust.py
- logical_and(decisions.good, ratio > 1 + high)
+ logical_and(decisions.mask, ratio > 1 + high)

# sides_swapped: the asymmetric clip takes each side's width for the other
objective/trust.py < objective/test_trust.py
- low=self.eps_neg, high=self.eps_pos
+ low=self.eps_pos, high=self.eps_neg

# dual_clip_log: the dual clip compares a log-ratio with a ratio
objective/trust.py < objective/test_trust.py
- log_ratio.detach() > math.log(self.bound)
+ log_ratio.detach() > self.bound

# cispo_detach: CISPO's weight keeps its gradient
objective/trust.py < objective/test_trust.py
- ratio = stop_gradient(log_ratio.exp())
+ ratio = log_ratio.exp()

# gate_detach: the Gaussian gate keeps its gradient
objective/trust.py < objective/test_trust.py
- gate = stop_gradient((-0.5 * ((ratio - 1) / self.sigma).square()).exp())
+ gate = (-0.5 * ((ratio - 1) / self.sigma).square()).exp()

# k3_reversed: k3 measures from the policy to the reference
objective/divergence.py < objective/test_divergence.py
- clamped = gap.clamp(max=LOG_LIMIT)
+ clamped = gap.neg().clamp(max=LOG_LIMIT)

# k3_gradient: the gradient of k3 pushes away from the reference
objective/divergence.py < objective/test_divergence.py
- value, -grown)
+ value, grown)

# wrong_reference: the divergence is measured from the old policy
objective/loss.py < objective/test_presets.py
- if objective.divergence.against == "behaviour" else acted.reference_log_prob
+ if objective.divergence.against == "behaviour" else acted.old_log_prob

# entropy_sign: the entropy is punished
objective/loss.py < objective/test_loss.py
- total = total - plan.entropy * (weight * decisions.entropy).sum()
+ total = total + plan.entropy * (weight * decisions.entropy).sum()

# correction_inverted: the importance weight is that of the sampler over the policy
objective/objective.py < objective/test_plan.py
- gap = acted.old_log_prob - acted.behaviour_log_prob
+ gap = acted.behaviour_log_prob - acted.old_log_prob

# mask_one_sided: the mask keeps weights below its minimum
objective/correction.py < objective/test_correction.py
- is_kept = (measure >= self.minimum) & (measure <= self.maximum)
+ is_kept = measure <= self.maximum

# off_policy_sign: the mask drops the members that rose
objective/credit.py < objective/test_credit.py
- decisions.mean(sampled - stop_gradient(decisions.log_prob))
+ decisions.mean(stop_gradient(decisions.log_prob) - sampled)

# matching_detach: the size that divides an error keeps its gradient
objective/matching.py < objective/test_matching.py
- clean.detach().abs().mean(1)
+ clean.abs().mean(1)

# temperature: logits are multiplied by the temperature
causal_lm/head.py < causal_lm/test_head.py
- else self.scale / self.temperature
+ else self.scale * self.temperature

# vocabulary_blocks: the mass of earlier blocks of the vocabulary keeps its old peak
causal_lm/head.py < causal_lm/test_head.py
- old_total = self.total[rows] * old_factor
+ old_total = self.total[rows]

# top_p: the token that reaches top-p is left out
causal_lm/decode.py < causal_lm/test_draw.py
- keep = p.cumsum(1) - p < top_p
+ keep = p.cumsum(1) < top_p

# sampled_mass: the behaviour log-prob is divided by the mass twice over
causal_lm/sampler.py < causal_lm/test_sampler.py
- chosen - mass
+ chosen + mass

# clipped_by_value: every number of the gradient is clipped, and not its norm
learner/local.py < training/test_step.py
- torch.nn.utils.clip_grads_with_norm_(parameters, numbers.max_grad_norm, norm)
+ torch.nn.utils.clip_grad_value_(parameters, numbers.max_grad_norm)

# betas_swapped: AdamW's two decays are swapped
learner/local.py < learner/test_optimiser.py
- (numbers.beta1, numbers.beta2)
+ (numbers.beta2, numbers.beta1)

# generators_lost: a run that resumes draws from fresh generators
training/step/state.py < faults/test_kill.py
- streams.restore(record["generators"][world.rank])
+ pass

# ema_reference: the reference keeps the share that it should take
reference.py < reference/test_policy.py
- return 1 - self.decay
+ return self.decay

# average_decay: the average of the weights takes the share that it should keep
training/step/step.py < training/test_weight_average.py
- state.average.mix(1 - average.decay_after(
+ state.average.mix(average.decay_after(

# warm_up: the first step of a warm-up has the rate 0
training/optimiser_config.py < learner/test_optimiser.py
- min(1.0, (step + 1) / self.warm_up_steps)
+ min(1.0, step / self.warm_up_steps)
"""


@dataclass(frozen=True)
class Mutation:
    """A text of the source, another in its place, and the test that should see it."""

    name: str
    mistake: str
    source: str
    test: str
    old: str
    new: str


MUTATIONS = [Mutation(*match) for match in re.findall(r"# (\w+): (.+)\n(\S+) < (\S+)\n- (.+)\n\+ (.+)\n", TABLE)]


def mutated(mutation: Mutation) -> str:
    """Returns the whole source file with the mistake in it."""
    text = (ROOT / "src/groupwise" / mutation.source).read_text(encoding="utf-8")
    if (count := text.count(mutation.old)) != 1:
        sys.exit(f"{mutation.name}: the text {mutation.old!r} is {count} times in {mutation.source}; it must be once")
    return text.replace(mutation.old, mutation.new)


def copied(copy: Path) -> None:
    """Copies what the tests import and read."""
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, copy)
        elif path.name in FOLDERS:
            shutil.copytree(path, copy / path.name)


def first_failed(tests: Sequence[str], copy: Path) -> str | None:
    """Returns the first test that fails in the copy, or None."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", *tests]
    # The plugins of other packages take longer to import than most of these tests take.
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.+?::.+?)(?: - |$)", run.stdout, re.MULTILINE)
    if run.returncode != 1 or failed is None:
        sys.exit(f"pytest {' '.join(tests)} could not run:\n{run.stdout[-3000:]}{run.stderr[-3000:]}")
    return failed[1]


def seen_by(mutation: Mutation, copy: Path, everything: bool) -> str | None:
    """Returns the first test that sees the mutation, or None."""
    named = f"tests/{mutation.test}"
    folder = "/".join(named.split("/")[:2])
    for tests in ["tests"] if everything else [named, folder]:
        if (copy / tests).exists() and (failed := first_failed([tests], copy)) is not None:
            return failed
    return None


def cpu_seconds() -> float:
    """Returns what the runs have taken that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Makes every mutation, and prints who saw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[mutation.name for mutation in MUTATIONS])
    parser.add_argument("--all", action="store_true", help="all tests, not only those that should see it")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if options.only is None or mutation.name in options.only]
    texts = [mutated(mutation) for mutation in chosen]
    seen: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory(prefix="groupwise-mutations-") as folder:
        copy = Path(folder) / "project"
        copied(copy)
        place = [sys.executable, "-c", "import groupwise; print(groupwise.__file__)"]
        imported = subprocess.check_output(place, env={**os.environ, "PYTHONPATH": str(copy / "src")}, text=True)
        assert Path(imported.strip()).is_relative_to(copy), f"{imported.strip()} is imported, and not the copy"
        for mutation, text in zip(chosen, texts, strict=True):
            started, path = cpu_seconds(), copy / "src/groupwise" / mutation.source
            path.write_text(text, encoding="utf-8")
            seen[mutation.name] = test = seen_by(mutation, copy, options.all)
            shutil.copy2(ROOT / "src/groupwise" / mutation.source, path)
            print(f"{mutation.name:24} {cpu_seconds() - started:6.1f} s  {test or 'SURVIVED'}", flush=True)
        # Without a mutation all of these have to pass: otherwise they saw something else.
        if tests := sorted({test for test in seen.values() if test is not None}):
            failed = first_failed(tests, copy)
            assert failed is None, f"{failed} fails without any mutation"
    survived = [mutation for mutation in chosen if seen[mutation.name] is None]
    print(f"{len(chosen) - len(survived)} of {len(chosen)} seen, {cpu_seconds():.0f} CPU seconds")
    sys.exit("".join(f"\nno test saw {mutation.name}: {mutation.mistake}" for mutation in survived) or 0)


if __name__ == "__main__":
    main()
