"""Every method in every domain takes the recorded course through the real loop, and no two methods take the same."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.golden_runs.narrow import GIVEN, Narrow
from tests.golden_runs.record import COMMAND
from tests.golden_runs.runs import DOMAINS, TOLERANCE, golden_run, recorded
from tests.marks import slow_but

from groupwise.experiment import runner
from groupwise.objective import Objective
from groupwise.objective.preset import method_names


@cache
def expected(domain: str) -> dict[str, Any]:
    return json.loads(recorded(domain).read_text(encoding="utf-8"))["runs"]


# In `make test` one method runs in every domain, and with language, the fastest, one of each kind: a member's, a
# slice's and the whole step's scope, rewards over the batch, and what only a few presets have. CI runs all of
# them with language, those that language refuses with diffusion, and `make nightly` all in every domain.
METHODS = ("clip_cov", "gmpo", "reinforce_pp", "vespo")
QUICK = {*((domain, "grpo") for domain in DOMAINS), *(("language", method) for method in METHODS)}
SLOW = {("diffusion" if "refused" in run else "language", method) for method, run in expected("language").items()}
SLOWER = slow_but(("language",), DOMAINS)


def cases(quick: set[tuple[str, str]], slow: set[tuple[str, str]]) -> list[Any]:
    """Every method in every domain; those in neither set are nightly."""
    return [
        pytest.param(
            *pair,
            marks=() if pair in quick else pytest.mark.slow if pair in slow else pytest.mark.nightly,
            id="-".join(pair),
        )
        for pair in itertools.product(DOMAINS, method_names())
    ]


# With one advantage a member the token form of GSPO has GSPO's value and gradient. Fresh weights give no word a
# probability that could move by as much as either mask of DPPO allows; the oracles tell the two apart.
SAME_BY_DESIGN = [{"gspo", "gspo_token"}, {"dppo_tv", "dppo_kl"}]
# The bound of dual clip begins where a bad choice grows threefold, and only restoration's steps are as large.
SAME_IN = {domain: [{"bnpo", "dual_clip"}] for domain in ("language", "diffusion", "selection")}


def differences(found: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """What is not within `TOLERANCE max(1, |kept|)`."""
    if "refused" in found or "refused" in kept:
        return [] if found == kept else [f"found {found}, recorded {kept}"]
    wrong = []
    for name, numbers in kept.items():
        pairs = zip(found[name], numbers, strict=True) if isinstance(numbers, list) else [(found[name], numbers)]
        wrong += [
            f"{name}[{place}] = {a!r}, recorded {b!r}"
            for place, (a, b) in enumerate(pairs)
            if abs(a - b) > TOLERANCE * max(1.0, abs(b))
        ]
    return wrong


@pytest.mark.parametrize(("domain", "method"), cases(QUICK, SLOW))
def test_the_run_takes_its_recorded_course(domain: str, method: str, tmp_path: Path) -> None:
    wrong = differences(golden_run(domain, method, tmp_path), expected(domain)[method])
    assert not wrong, f"{'; '.join(wrong)}. If this change is meant, say why and run: {COMMAND} {domain}"


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_method_is_recorded(domain: str) -> None:
    assert set(expected(domain)) == set(method_names()), f"run: {COMMAND} {domain}"


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_two_methods_take_the_same_course(domain: str) -> None:
    alike: dict[tuple[float, ...], set[str]] = defaultdict(set)
    for method, run in expected(domain).items():
        if "refused" not in run:
            # All of it: where every answer is as long, methods that weigh by length differ by a factor, and a clipped
            # gradient's step is the same.
            alike[tuple(round(number, 6) for number in (*run["loss"], *run["grad_norm"], run["weights"]))].add(method)
    same = [methods for methods in alike.values() if len(methods) > 1]
    assert [methods for methods in same if methods not in SAME_BY_DESIGN + SAME_IN.get(domain, [])] == []


def test_language_serves_every_method_but_those_of_transitions() -> None:
    refused = {method for method, run in expected("language").items() if "refused" in run}
    of_transitions = {"exact_divergence", "mean_shift", "old_divergence", "step_size"}
    objectives = {method: Objective.preset(method) for method in method_names()}
    assert refused == {
        method
        for method, objective in objectives.items()
        if (objective.requires | objective.requires_rollouts) & of_transitions
    }


def test_a_small_change_is_noticed() -> None:
    kept = expected("language")["grpo"]
    moved = kept | {"loss": [kept["loss"][0] + 2e-8, *kept["loss"][1:]]}
    assert differences(kept, kept) == []
    assert len(differences(moved, kept)) == 1


@pytest.mark.parametrize("domain", SLOWER)
def test_a_change_of_the_mathematics_by_a_millionth_is_noticed(
    domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Objective.prepare

    def planted(*args: Any, **keys: Any) -> Any:
        batch = prepare(*args, **keys)
        return replace(batch, advantage=batch.advantage * (1 + 1e-6))

    monkeypatch.setattr(Objective, "prepare", planted)
    assert len(differences(golden_run(domain, "grpo", tmp_path), expected(domain)["grpo"])) > 3


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS)
def test_no_number_on_the_way_is_computed_in_fp32(domain: str, tmp_path: Path) -> None:
    with Narrow() as narrow:
        golden_run(domain, "grpo", tmp_path)
    assert narrow.computed - GIVEN == set()


@pytest.mark.parametrize(("domain", "method"), cases(set(), {(domain, "grpo") for domain in DOMAINS}))
def test_a_nudge_of_the_start_does_not_grow_beyond_the_tolerance(
    domain: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rounding error is 1e-16: what holds at 1e-9 holds on every processor."""
    opened = runner.open_domain

    def nudged(*args: Any, **keys: Any) -> Any:
        domain = opened(*args, **keys)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in domain.module.parameters():
                weight.mul_(1 + 1e-9 * torch.randn(weight.shape, dtype=weight.dtype, generator=generator))
        return domain

    monkeypatch.setattr(runner, "open_domain", nudged)
    assert differences(golden_run(domain, method, tmp_path), expected(domain)[method]) == []
