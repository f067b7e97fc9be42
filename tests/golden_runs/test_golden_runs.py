"""Every method in every domain takes the recorded course through the real loop, and no two methods take the same."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.golden_runs.record import COMMAND
from tests.golden_runs.runs import DOMAINS, TOLERANCE, golden_run, recorded

from groupwise.experiment import runner
from groupwise.objective import Objective
from groupwise.objective.preset import method_names

# Every method runs in `make test` with language; the other domains' models are slower, and there one method does.
QUICK = {(domain, method) for domain in DOMAINS for method in method_names() if domain == "language" or method == "grpo"}
CASES = [
    pytest.param(domain, method, marks=() if (domain, method) in QUICK else pytest.mark.slow, id=f"{domain}-{method}")
    for domain in DOMAINS
    for method in method_names()
]
# With one advantage a member the token form of GSPO has GSPO's value and gradient. Fresh weights give no word a probability that could move by as much as
# either mask of DPPO allows; the oracles tell the two apart.
SAME_BY_DESIGN = [{"gspo", "gspo_token"}, {"dppo_tv", "dppo_kl"}]
# In selection's ten steps no bad choice grows threefold, where the bound of dual clip begins; in the other domains it acts.
SAME_IN = {"selection": [{"bnpo", "dual_clip"}]}


@cache
def expected(domain: str) -> dict[str, Any]:
    return json.loads(recorded(domain).read_text(encoding="utf-8"))["runs"]


def differences(found: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """What is not within `TOLERANCE max(1, |kept|)`."""
    if "refused" in found or "refused" in kept:
        return [] if found == kept else [f"found {found}, recorded {kept}"]
    wrong = []
    for name, numbers in kept.items():
        pairs = zip(found[name], numbers, strict=True) if isinstance(numbers, list) else [(found[name], numbers)]
        wrong += [f"{name}[{place}] = {a!r}, recorded {b!r}" for place, (a, b) in enumerate(pairs) if abs(a - b) > TOLERANCE * max(1.0, abs(b))]
    return wrong


@pytest.mark.parametrize(("domain", "method"), CASES)
def test_the_run_takes_its_recorded_course(domain: str, method: str, tmp_path: Path) -> None:
    wrong = differences(golden_run(domain, method, tmp_path), expected(domain)[method])
    assert not wrong, f"{'; '.join(wrong)}. If this change is meant, say why and run: {COMMAND} {domain}"


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_method_is_recorded(domain: str) -> None:
    assert set(expected(domain)) == set(method_names()), f"run: {COMMAND} {domain}"


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_two_methods_take_the_same_course(domain: str) -> None:
    alike: dict[float, set[str]] = defaultdict(set)
    for method, run in expected(domain).items():
        if "refused" not in run:
            alike[round(run["weights"], 6)].add(method)
    same = [methods for methods in alike.values() if len(methods) > 1]
    assert [methods for methods in same if methods not in SAME_BY_DESIGN + SAME_IN.get(domain, [])] == []


def test_language_serves_every_method_but_those_of_transitions() -> None:
    refused = {method for method, run in expected("language").items() if "refused" in run}
    of_transitions = {"exact_divergence", "mean_shift", "step_size"}
    objectives = {method: Objective.preset(method) for method in method_names()}
    assert refused == {method for method, objective in objectives.items() if (objective.requires | objective.requires_rollouts) & of_transitions}


def test_a_small_change_is_noticed() -> None:
    kept = expected("language")["grpo"]
    moved = kept | {"loss": [kept["loss"][0] + 2e-8, *kept["loss"][1:]]}
    assert differences(kept, kept) == []
    assert len(differences(moved, kept)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", method_names())
def test_rounding_does_not_grow_beyond_the_tolerance(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = runner.open_domain

    def nudged(*args: Any, **keys: Any) -> Any:
        domain = opened(*args, **keys)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in domain.module.parameters():
                weight.mul_(1 + 1e-14 * torch.randn(weight.shape, dtype=weight.dtype, generator=generator))
        return domain

    monkeypatch.setattr(runner, "open_domain", nudged)
    assert differences(golden_run("language", method, tmp_path), expected("language")[method]) == []
