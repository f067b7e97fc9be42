from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.images.restoration.small import GATED, TABLE, UPSCALED, config, domain, nudge, sampled

from groupwise.config import ConfigError, merge
from groupwise.reward import RewardError
from groupwise.streams import Streams
from groupwise.testing import check_domain
from groupwise_images.restoration.domain import RestorationDomain

ROWS = torch.arange(6)
TWO = {"in_channels": 1, "out_channels": 2, "kernel_size": 3}
TABLES = pytest.mark.parametrize(
    "table",
    [TABLE, merge(TABLE, {"policy": {"block": 4}}), GATED, UPSCALED],
    ids=["pixels", "blocks", "gates", "upscaled"],
)


def odd(name: str) -> dict[str, Any]:
    """A network of one's own."""
    return {
        "model": {
            "network": {"kind": "callable", "path": f"tests.images.restoration.odd_networks:{name}", "channels": 1}
        }
    }


def test_the_exact_divergence_is_that_of_torch() -> None:
    for table in (TABLE, GATED):
        given = domain(table=table)
        samples = sampled(given)
        nudge(given)
        own = given.score(samples, ROWS, frozenset({"log_prob", "exact_divergence"})).exact_divergence
        assert own is not None
        assert own.min() >= 0
        assert own.max() > 0
        if table is TABLE:
            live = given.module(samples.payload["degraded"])
            gap = torch.distributions.kl_divergence(
                torch.distributions.Normal(live, 0.2),
                torch.distributions.Normal(samples.payload["reference_mean"], 0.2),
            )
            assert torch.allclose(own, gap.flatten(1), atol=1e-12)


def test_maps_give_every_block_a_reward_of_its_own() -> None:
    changes = {
        "policy": {"block": 4},
        "rewards": {"bright": {"kind": "callable", "path": "tests.images.restoration.small:bright_map"}},
    }
    given = domain(changes)
    samples = sampled(given, reference=False)
    table = given.reward(samples)
    maps = np.stack(table.maps["bright"])
    assert maps.shape == (6, 4)
    image = samples.payload["images"][2].double() / 255
    assert maps[2] == pytest.approx([float(part.mean()) for rows in image.split(4) for part in rows.split(4, dim=1)])
    assert table.values["bright"][2] == pytest.approx(float(image.mean()))


def test_consistency_is_measured_against_the_reference_and_supervision_against_the_target() -> None:
    given = domain({"consistency": "l2"})
    samples = sampled(given)
    assert samples.auxiliary_count["consistency"].tolist() == [1] * 6
    assert given.score(samples, ROWS, frozenset()).auxiliary["consistency"].abs().max() == 0
    nudge(given)
    live = given.module(samples.payload["degraded"])
    expected = (live - samples.payload["reference_output"]).square().mean((1, 2, 3))
    assert torch.allclose(given.score(samples, ROWS, frozenset()).auxiliary["consistency"], expected)
    shown = given.demonstrations(5, streams=Streams(0), step=3)
    assert not shown.mask.any()
    loss = given.score(shown, torch.arange(5), frozenset()).auxiliary["supervised"]
    assert torch.allclose(
        loss, (given.module(shown.payload["degraded"]) - shown.payload["target"]).abs().mean((1, 2, 3))
    )


def test_the_policys_mode_is_the_network_and_what_is_shown_is_clamped() -> None:
    given = domain()
    found = given.evaluate(streams=Streams(0))
    again = domain().evaluate(streams=Streams(99))
    assert found.metrics == again.metrics
    assert set(found.metrics) <= set(given.metric_names)
    assert found.pictures["images"].dtype == torch.uint8
    samples = sampled(given, reference=False)
    action = samples.payload["action"]
    assert action.min() < 0 < 1 < action.max()
    expected = (action.clamp(0, 1) * 255 + 0.5).to(torch.uint8)[:, 0]
    assert torch.equal(samples.payload["images"], expected)


@TABLES
def test_every_law_of_a_domain_holds(table: dict[str, Any]) -> None:
    given = domain(table=table)
    check_domain(given, reopen=lambda folder: given)


def test_each_step_degrades_anew_unless_told_otherwise() -> None:
    fresh, fixed = domain(), domain({"fresh": False})
    for given, same in ((fresh, False), (fixed, True)):
        first, second = (sampled(given, step=step, reference=False).payload["degraded"] for step in (0, 1))
        assert torch.equal(first, second) == same


def test_saved_and_loaded_again(tmp_path: Path) -> None:
    given = domain()
    nudge(given)
    given.save(tmp_path / "model")
    tree = merge(TABLE, {"model": {"kind": "pretrained", "path": str(tmp_path / "model")}})
    again = domain(table=tree)
    assert again.evaluate(streams=Streams(0)).metrics == given.evaluate(streams=Streams(0)).metrics
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "model" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "Pair",
            (
                r"gives a tuple for images of \[1, 1, 8, 8\] \(float64\); write a network that gives the restored"
                r" images alone"
            ),
        ),
        ("Half", r"gives \[1, 1, 8, 8\] \(float16\) for images of .*float64.*the same shape and type"),
        ("Lost", r"gives NaN or infinity for image 'digit-\d+'"),
        ("Detached", r"output has no gradient, and nothing would be trained"),
        ("InPlace", r"changes the images it is given"),
        ("Halving", r"fails on images of \[1, 1, 8, 8\] \(float64\): RuntimeError"),
        ("Frozen", r"no parameter that could be trained; set requires_grad for some"),
    ],
)
def test_a_network_that_does_not_suit_is_told_why(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        domain(odd(name))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Deep", r"gives a list for images of \[1, 1, 8, 8\] \(float64\) in training mode; write a network that gives"),
        ("Pooled", r"fails in training mode .*: Expected more than 1 value.*train.demonstrations_per_step"),
    ],
)
def test_a_network_that_fails_in_training_mode_alone_is_told_why(name: str, message: str) -> None:
    given = domain(odd(name))
    shown = given.demonstrations(1, streams=Streams(0), step=0)
    with pytest.raises(ConfigError, match=message):
        given.score(shown, torch.arange(1), frozenset())


def test_an_image_that_gives_no_numbers_is_named() -> None:
    given = domain(odd("Bright"))
    dark, bright = given._train[0], given._train[1]
    bright.clean[:] = 9
    with pytest.raises(
        ConfigError,
        match=rf"at step 3 the network gives NaN or infinity for image '{bright.key}'; its training has diverged",
    ):
        given.sample(given.prompts([0, 1]), 2, streams=Streams(7), step=3, settings={}, requires=frozenset())
    assert (
        given.sample(given.prompts([0]), 2, streams=Streams(7), step=3, settings={}, requires=frozenset())
        .prompts[0]
        .key
        == dark.key
    )
    given._held_out[2].clean[:] = 9
    with pytest.raises(ConfigError, match=rf"NaN or infinity for held-out image '{given._held_out[2].key}'"):
        given.evaluate(streams=Streams(0))


def test_the_sizes_of_held_out_images_are_tried_before_anything_is_trained(tmp_path: Path) -> None:
    for number in range(4):
        Image.fromarray(np.full((40, 33 + 15 * (number == 0)), 9 * number, "uint8")).save(tmp_path / f"{number}.png")
    table = merge(TABLE, odd("Halving") | {"patch": 16, "rewards": {"bright": {"kind": "psnr"}}})
    table["source"] = {"kind": "folder", "clean": str(tmp_path), "channels": 1, "num_held_out": 1}
    with pytest.raises(
        ConfigError, match=r"fails on held-out images of \[1, 1, 40, 33\] \(float64\).*write it as domain.tile.multiple"
    ):
        domain(table=table)
    given = domain(table=merge(table, {"tile": {"multiple": 16}}))
    assert given.evaluate(streams=Streams(0)).metrics["restored/psnr"] > 0
    with pytest.raises(ConfigError, match="size = 40 is no multiple of multiple = 16; write size = 48"):
        config({"tile": {"multiple": 16, "size": 40}})


def test_an_image_whose_size_does_not_suit_is_named_by_its_file(tmp_path: Path) -> None:
    for number, size in enumerate([(8, 8), (8, 5), (8, 8), (8, 8)]):
        Image.fromarray(np.zeros(size, "uint8")).save(tmp_path / f"{number}.png")
    table = merge(TABLE, {"rewards": {"bright": {"kind": "psnr"}}}) | {
        "source": {"kind": "folder", "clean": str(tmp_path), "channels": 1, "num_held_out": 1}
    }
    with pytest.raises(
        ConfigError,
        match=r"/[03].png is \[8, 8\] pixels and .*/1.png \[8, 5\]; images of different sizes need domain.patch",
    ):
        domain(table=table)
    with pytest.raises(
        ConfigError, match=r"patch = 6: image .*/1.png has \[8, 5\] pixels; write at most 5, or leave the image out"
    ):
        domain(table=table | {"patch": 6})


@pytest.mark.parametrize("name", ["small", "channels"])
def test_a_map_of_another_shape_is_told(name: str) -> None:
    given = domain({"rewards": {"bright": {"kind": "callable", "path": f"tests.images.restoration.small:{name}_map"}}})
    with pytest.raises(
        RewardError,
        match=(
            r"gave (a map of \[4, 4\] for image 'digit-\d+' of \[8, 8\].*one value a pixel|maps, and an array of shape"
            r" \[1, 8, 8\] for member 0; write a map of finite numbers, \[H, W\])"
        ),
    ):
        given.reward(sampled(given, reference=False))


def test_half_precision_networks_have_log_probs_of_single_precision() -> None:
    for table in (TABLE, GATED):
        given = domain({"model": {"dtype": "bfloat16"}}, table)
        given.module.eval()
        samples = sampled(given)
        assert samples.old_log_prob.dtype == torch.float32
        assert samples.old_log_prob.isfinite().all()
        again = given.score(samples, ROWS, frozenset({"log_prob"})).log_prob
        assert torch.allclose(again, samples.old_log_prob, atol=1e-4)


def test_what_behaves_otherwise_in_training_is_scored_as_it_sampled() -> None:
    """Dropout and batch normalisation: the ratio of an unchanged network is 1, and its running statistics are not those
    of sampled groups.
    """
    given = domain(odd("Normalised"))
    before = {name: value.clone() for name, value in given.module.named_buffers()}
    assert set(before) == {"scale", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    given.module.eval()
    samples = sampled(given, reference=False)
    given.module.train()
    scored = given.score(samples, ROWS, frozenset({"log_prob"}))
    assert torch.allclose(scored.log_prob, samples.old_log_prob)
    assert all(torch.equal(value, before[name]) for name, value in given.module.named_buffers())
    shown = given.demonstrations(5, streams=Streams(0), step=3)
    given.score(shown, torch.arange(5), frozenset())
    assert given.module.norm.num_batches_tracked == 1


def test_four_gates_are_no_four_quarters_of_an_image() -> None:
    """A map has no pixel of its own for a control parameter: every gate gets the mean."""
    changes = {
        "model": {"network": {"bands": 4}},
        "rewards": {"bright": {"path": "tests.images.restoration.small:bright_map"}},
    }
    given = domain(changes, table=GATED)
    samples = sampled(given, reference=False)
    assert samples.mask.shape == (6, 4)
    table = given.reward(samples)
    assert not table.maps
    assert table.values["bright"] == pytest.approx(
        [float(image.float().mean()) / 255 for image in samples.payload["images"]]
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": {"block": 3}}, "policy.block = 3.*8 x 8 pixels"),
        ({"patch": 9}, r"patch = 9: image 'digit-\d+' has \[8, 8\] pixels; write at most 8"),
        (
            {"model": {"network": {"kind": "callable", "path": "torch.nn:Identity", "channels": 1}}},
            "no parameter that could be trained",
        ),
        (
            {"model": {"network": {"kind": "callable", "path": "torch.nn:Conv2d", "arguments": TWO, "channels": 1}}},
            r"gives \[1, 2, 6, 6\] \(float64\) for images of \[1, 1, 8, 8\]",
        ),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        domain(changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": {"kind": "gates"}}, "no control parameters; write network.kind"),
        ({"model": {"network": {"channels": 3}}}, "model.network.channels = 3, and the images have 1"),
        (
            {"sampling_schedule": {"sigma": {"kind": "linear", "start": 0.2, "end": 0.0, "num_steps": 5}}},
            "comes to 0: it must be above 0",
        ),
        ({"tile": {"size": 16, "overlap": 9}}, "overlap = 9 is more than half"),
        ({"rewards": {"bright": {"kind": "psnr", "weight": 0.0}}}, "rewards names nothing to train on"),
    ],
)
def test_contradictions_are_named_when_the_configuration_is_read(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(changes)


def test_a_stage_may_change_the_rewards_and_not_the_network() -> None:
    given = domain()
    other = given.adapted(config({"policy": {"sigma": 0.1}}))
    assert isinstance(other, RestorationDomain)
    assert other.module is given.module
    with pytest.raises(ConfigError, match="belongs to the whole run"):
        given.adapted(config({"model": {"seed": 4}}))
