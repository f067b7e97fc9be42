from __future__ import annotations

import pytest
import torch
from tests.images.diffusion.small import domain

from groupwise.streams import Streams


def test_the_loss_of_flow_matching_written_down_anew() -> None:
    given = domain()
    shown = given.demonstrations(5, streams=Streams(0), step=2)
    assert shown is not None
    assert not shown.mask.any()
    loss = given.score(shown, torch.arange(5), frozenset({"log_prob"})).auxiliary["supervised"]
    for row in range(5):
        clean, noise, time = (shown.payload[name][row][None] for name in ("clean", "noise", "time"))
        label = torch.tensor([shown.prompts[int(shown.group[row])].columns["label"]])
        v = given.module((1 - time) * clean + time * noise, 1000 * time, class_labels=label, return_dict=False)[0]
        assert float(loss[row]) == pytest.approx(float((v - (noise - clean)).square().mean()), abs=1e-10)
    assert shown.auxiliary_count["supervised"].tolist() == [1.0] * 5


@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction", "sample"])
def test_the_loss_of_other_parametrisations(prediction_type: str) -> None:
    settings = {"prediction_type": prediction_type}
    given = domain(
        {"model": {"scheduler": {"name": "DDIMScheduler", "settings": settings}}, "sampler": {"kind": "ddim"}}
    )
    shown = given.demonstrations(3, streams=Streams(0), step=0)
    assert shown is not None
    loss = given.score(shown, torch.arange(3), frozenset({"log_prob"})).auxiliary["supervised"]
    bars = given.denoiser.scheduler.alphas_cumprod.double()  # type: ignore[attr-defined]
    for row in range(3):
        clean, noise = shown.payload["clean"][row][None], shown.payload["noise"][row][None]
        index = int(shown.payload["time"][row] * 1000)
        a, b = bars[index].sqrt(), (1 - bars[index]).sqrt()
        label = torch.tensor([shown.prompts[int(shown.group[row])].columns["label"]])
        found = given.module(a * clean + b * noise, torch.tensor([index]), class_labels=label, return_dict=False)[0]
        target = {"epsilon": noise, "v_prediction": a * noise - b * clean, "sample": clean}[prediction_type]
        assert float(loss[row]) == pytest.approx(float((found - target).square().mean()), abs=1e-5)


def test_a_share_is_shown_without_its_prompt() -> None:
    given = domain({"demonstrations": {"unconditional_share": 0.5}})
    shown = given.demonstrations(200, streams=Streams(0), step=0)
    assert shown is not None
    dropped = shown.payload["dropped"]
    assert 70 < int(dropped.sum()) < 130
    labels: list[int] = []
    given.module.register_forward_pre_hook(
        lambda module, inputs, named: labels.extend(named["class_labels"].tolist()), with_kwargs=True
    )
    given.score(shown, torch.arange(200), frozenset({"log_prob"}))
    assert [label == 10 for label in labels] == dropped.tolist()


def test_a_batch_depends_on_its_step_alone_and_never_repeats_an_image() -> None:
    given = domain()
    first, again, other = (given.demonstrations(64, streams=Streams(0), step=step) for step in (1, 1, 2))
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first.payload["clean"], again.payload["clean"])
    assert not torch.equal(first.payload["noise"], other.payload["noise"])
    assert len({tuple(image.flatten().tolist()) for image in first.payload["clean"]}) == 64
