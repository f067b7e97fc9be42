from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import betaln, digamma
from tests.images.restoration.small import EVERYTHING, GATED, domain, nudge, sampled

from groupwise.config import ConfigError
from groupwise_images.restoration.policy import GatePolicy

ROWS = torch.arange(6)


def test_log_probs_are_those_of_torchs_beta_and_the_gates_are_drawn_from_it() -> None:
    given = domain(table=GATED)
    nudge(given)
    samples = sampled(given, group_size=400, reference=False)
    mode, concentration = given.module.controls(samples.payload["degraded"])
    beta = torch.distributions.Beta(1 + concentration * mode, 1 + concentration * (1 - mode))
    gates = samples.payload["gates"]
    rows = torch.arange(800)
    assert torch.allclose(given.score(samples, rows, frozenset({"log_prob"})).log_prob, beta.log_prob(gates), atol=1e-9)
    for group in (slice(0, 400), slice(400, 800)):
        assert torch.allclose(gates[group].mean(0), beta.mean[group][0], atol=0.02)
        assert torch.allclose(gates[group].std(0), beta.stddev[group][0], atol=0.02)


def test_the_score_norm_is_the_gradient_by_the_distributions_parameters() -> None:
    given = domain(table=GATED)
    samples = sampled(given)
    found = given.score(samples, ROWS, EVERYTHING & given.supplies)
    mode, concentration = given.module.controls(samples.payload["degraded"])
    alpha, beta = (
        each.detach().requires_grad_() for each in (1 + concentration * mode, 1 + concentration * (1 - mode))
    )
    torch.distributions.Beta(alpha, beta).log_prob(samples.payload["gates"]).sum().backward()
    assert alpha.grad is not None
    assert beta.grad is not None
    assert torch.allclose(found.score_norm, torch.hypot(alpha.grad, beta.grad), atol=1e-9)


def test_bands_add_up_to_the_correction() -> None:
    from groupwise_images.restoration.network import _bands

    value = torch.rand(2, 3, 9, 7, dtype=torch.float64)
    assert torch.allclose(torch.stack(_bands(value, 4)).sum(0), value, atol=1e-14)


def test_log_prob_entropy_and_divergence_and_their_gradients_are_those_written_down() -> None:
    """The Beta distribution by its definition, in fp64: scipy for the values, differences of it for the gradients."""
    mode, concentration = torch.tensor([[0.2, 0.999, 0.5]]).double(), torch.tensor([[3.0, 20.0, 1e-3]]).double()
    gates = torch.tensor([[0.7, 1 - 1e-6, 1e-6]]).double()
    payload = {
        "gates": gates,
        "reference_alpha": torch.tensor([[2.0, 1.0, 9.0]]).double(),
        "reference_beta": torch.tensor([[1.5, 4.0, 1.0]]).double(),
    }

    class Given:
        def controls(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return moved[0], moved[1]

    def by_definition(m: np.ndarray, c: np.ndarray) -> dict[str, np.ndarray]:
        a, b, g = 1 + c * m, 1 + c * (1 - m), gates[0].numpy()
        p, q = payload["reference_alpha"][0].numpy(), payload["reference_beta"][0].numpy()
        part = (a - p) * digamma(a) + (b - q) * digamma(b) + (p - a + q - b) * digamma(a + b)
        return {
            "log_prob": (a - 1) * np.log(g) + (b - 1) * np.log1p(-g) - betaln(a, b),
            "entropy": betaln(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b),
            "exact_divergence": betaln(p, q) - betaln(a, b) + part,
        }

    moved = torch.stack([mode, concentration]).requires_grad_()
    policy = GatePolicy()
    predicted = policy.predict(Given(), torch.zeros(1))  # type: ignore[arg-type]
    found = policy.fields(predicted, payload, frozenset({"entropy", "exact_divergence"}))
    expected = by_definition(mode[0].numpy(), concentration[0].numpy())
    for name in expected:
        assert found[name][0].tolist() == pytest.approx(expected[name].tolist(), rel=1e-9, abs=1e-9), name
        (gradient,) = torch.autograd.grad(found[name].sum(), moved, retain_graph=True)
        for which in range(2):
            step = [1e-5 * (which == 0) * np.ones(3), 1e-5 * (which == 1) * concentration[0].numpy()]
            up, down = (
                by_definition(mode[0].numpy() + sign * step[0], concentration[0].numpy() + sign * step[1])[name]
                for sign in (1, -1)
            )
            assert gradient[which, 0].tolist() == pytest.approx(
                ((up - down) / (2 * step[which])).tolist(), rel=1e-5, abs=1e-6
            ), (name, which)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("", None),
        ("one", r"control parameters fail on images of \[1, 1, 8, 8\].*\(mode, concentration\), each \[N, 2\]"),
        ("mode", r"gives modes \[2\.\d+, 2\.\d+\].*modes in \[0, 1\]"),
        ("concentration", r"concentrations \[-.*concentrations above 0"),
        ("ignored", r"gives the same image whatever controls are"),
        ("other", r"without controls it gives another image than with their mode"),
    ],
)
def test_control_parameters_of_ones_own_are_tried_before_anything_is_drawn(how: str, message: str | None) -> None:
    own = {
        "kind": "callable",
        "path": "tests.images.restoration.odd_networks:Steered",
        "arguments": {"how": how},
        "channels": 1,
        "controls": 2,
    }
    if message is None:
        assert sampled(domain({"model": {"network": own}}, GATED), reference=False).mask.shape == (6, 2)
        return
    with pytest.raises(ConfigError, match=message):
        domain({"model": {"network": own}}, GATED)
