from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from tests.images.diffusion.small import EVERYTHING, nudge, sampled
from tests.images.diffusion.small_pairs import PAIRS, SIGMA, config, domain
from tests.images.restoration.small import domain as restoration
from tests.oracles import flow

from groupwise.config import ConfigError, merge, validate
from groupwise.objective.matching import Mirrored, Velocity
from groupwise.streams import Streams
from groupwise.testing import check_domain
from groupwise_images.diffusion.domain import DiffusionDomain

ROWS = torch.arange(6)


def files(folder: Path, num: int = 4, side: int = 8, targets: bool = True) -> Path:
    """A table of pairs of grey images."""
    random, lines = np.random.default_rng(0), []
    for number in range(num):
        for part in ("noisy", "clean"):
            pixels = random.integers(0, 256, (side, side), dtype="uint8")
            (folder / part).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(folder / part / f"{number}.png")
        target = {"target": f"clean/{number}.png"} if targets else {}
        lines.append(json.dumps({"image": f"noisy/{number}.png", "label": number, **target}))
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    return folder


def table(folder: Path, **changes: Any) -> dict[str, Any]:
    images = {"kind": "table", "path": str(folder / "pairs.jsonl"), "channels": 1, "num_held_out": 1, **changes}
    return {"data": {"source": {"kind": "image_pairs", "images": images}}}


def paired(changes: dict[str, Any]) -> DiffusionDomain:
    """The small domain with pairs of files in the place of digits."""
    base = {**PAIRS, "data": {}}
    return DiffusionDomain(validate(type(config()), merge(base, changes)), streams=Streams(0))


def noisy(key: str, *place: int | str, seed: int = 0) -> np.ndarray:
    """A digit with its noise, drawn without the domain."""
    clean: Any = load_digits().images[int(key.partition("-")[2])] / 16
    normal = Streams(seed).numpy("degrade", key, *place).standard_normal((1, 8, 8))
    return (clean.astype("float32")[None] + SIGMA * normal).astype("float32")


@pytest.mark.slow
def test_every_law_of_a_domain_holds(tmp_path: Path) -> None:
    def reopen(folder: Path) -> DiffusionDomain:
        pretrained = {**PAIRS, "model": {"kind": "pretrained", "path": str(folder)}}
        return DiffusionDomain(validate(type(config()), pretrained), streams=Streams(0))

    check_domain(domain(), tolerance=1e-10, reopen=reopen)


@pytest.mark.parametrize(("name", "guidance"), [("DiTTransformer2DModel", 2.5), ("UNet2DModel", 1.0)])
def test_log_probs_are_those_of_a_plain_loop(name: str, guidance: float) -> None:
    """Written down anew: the channels concatenated by hand, one member and transition at a time, torch's Normal."""
    unet = {
        "sample_size": 8, "in_channels": 2, "out_channels": 1, "block_out_channels": [4, 4], "layers_per_block": 1,
        "norm_num_groups": 2, "add_attention": False, "down_block_types": ["DownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "UpBlock2D"],
    }  # fmt: skip
    model = {**PAIRS["model"], "name": name, "shape": PAIRS["model"]["shape"] if name[0] == "D" else unet}
    small = DiffusionDomain(
        validate(type(config()), {**PAIRS, "model": model, "guidance": guidance}), streams=Streams(0)
    )
    samples = sampled(small, step=3)
    scored = small.score(samples, ROWS, EVERYTHING)
    assert torch.allclose(scored.log_prob, samples.old_log_prob, rtol=0, atol=1e-12)
    nudge(small)
    scored = small.score(samples, ROWS, EVERYTHING)

    def velocity(x: torch.Tensor, s: float, image: torch.Tensor, label: int) -> torch.Tensor:
        classes = {"class_labels": torch.tensor([label])} if name[0] == "D" else {}
        return small.module(torch.cat([x, image], 1), torch.tensor([1000 * s]), return_dict=False, **classes)[0]

    for member in (0, 4):
        image = torch.from_numpy(noisy(samples.prompts[member // 3].key, "degradation", 3, 0)).double()[None] * 2 - 1
        for decision in range(3):
            s, after = 1 - decision / 4, 1 - (decision + 1) / 4
            x = samples.payload["visited"][member, decision][None]
            v, without = velocity(x, s, image, 0), velocity(x, s, torch.zeros_like(image), 1)
            v = without + guidance * (v - without)
            angle = torch.tensor(0.6 * torch.pi / 2, dtype=torch.float64)
            mean = (1 - after) * (x - s * v) + after * angle.cos() * (x + (1 - s) * v)
            normal = torch.distributions.Normal(mean, after * angle.sin())
            expected = normal.log_prob(samples.payload["visited"][member, decision + 1][None]).mean()
            assert float(scored.log_prob[member, decision].detach()) == pytest.approx(
                float(expected.detach()), abs=1e-9
            )


def test_noised_copies_are_predicted_under_the_image() -> None:
    small = domain()
    for matching in (
        validate(Velocity, {"times": {"num": 2}}),
        validate(Mirrored, {"strength": 0.4, "times": {"num": 2}}),
    ):
        drawn = small.sample(small.prompts(range(2)), 3, streams=Streams(0), step=1, settings={}, requires=frozenset())
        samples = small.noised(drawn, matching, streams=Streams(0), step=1)
        payload = samples.payload
        errors_too = {"positive_error", "negative_error"} if matching.kind == "mirrored" else set()
        requires = frozenset({"log_prob"}) | errors_too
        scored = small.score(samples, ROWS, requires)
        for member in (1, 5):
            image = (
                torch.from_numpy(noisy(samples.prompts[member // 3].key, "degradation", 1, 0)).double()[None] * 2 - 1
            )
            clean, noise = payload["latents"][member], payload["copy_noise"][member, 1]
            time = float(payload["copy_time"][member, 1])
            latents = torch.cat([((1 - time) * clean + time * noise)[None], image], 1)
            label = torch.tensor([0])
            with torch.no_grad():
                v = small.module(latents, torch.tensor([1000 * time]), class_labels=label, return_dict=False)[0][0]
            if matching.kind == "mirrored":
                errors = flow.errors_of(v, v, clean, noise, time, strength=0.4)
                found = [float(field[member, 1].detach()) for field in (scored.positive_error, scored.negative_error)]
                assert found == pytest.approx([float(error) for error in errors], abs=1e-9)
            else:
                expected = flow.log_prob_of(v, clean, noise, time, weighting="uniform")
                assert float(scored.log_prob[member, 1].detach()) == pytest.approx(float(expected), abs=1e-9)


def test_held_out_digits_are_those_of_the_restoration_domain() -> None:
    """So that a flow model and a regression network are compared on the same noise."""
    small = domain()
    shown = small._splits.shown(small._splits.evaluated, Streams(7), 9)
    network = restoration(
        {
            "source": {"kind": "digits", "num_train": 1790},
            "degradation": {"kind": "gaussian_noise", "sigma": SIGMA},
            "evaluation": {"num_images": 7},
        }
    )
    assert len(shown) == 14
    for place, prompt in enumerate(shown):
        picture, number = network._held_out[place % 7], place // 7
        expected = network._degraded(picture, picture.clean, Streams(0), "evaluate", number)
        assert prompt.key == (picture.key if number == 0 else f"{picture.key}#1")
        assert np.array_equal(prompt.columns["degraded"].pixels, expected)
        assert np.array_equal(prompt.columns["clean"].pixels, picture.clean)


def test_training_images_are_degraded_anew_at_every_step_unless_they_are_not() -> None:
    for fresh in (True, False):
        small = domain({"data": {"source": {"fresh": fresh, "seed": 5}}})
        first, second = (
            small.sample(small.prompts([3]), 1, streams=Streams(0), step=step, settings={}, requires=frozenset())
            for step in (0, 1)
        )
        pixels = [samples.prompts[0].columns["degraded"].pixels for samples in (first, second)]
        key = first.prompts[0].key
        steps = [noisy(key, "degradation", step, 0) for step in (0, 1)]
        always = noisy(key, "degradation", 0, 0, seed=5)
        assert all(map(np.array_equal, pixels, steps if fresh else [always, always]))


def test_demonstrations_are_pairs() -> None:
    small = domain()
    samples = small.demonstrations(5, streams=Streams(0), step=2)
    assert samples is not None
    assert len({prompt.key for prompt in samples.prompts}) == 5
    streams = Streams(Streams(0).seed("demonstrations"))
    for member, prompt in enumerate(samples.prompts):
        expected = (load_digits().images[int(prompt.key.partition("-")[2])] / 16).astype("float32")  # type: ignore[union-attr]
        assert torch.equal(samples.payload["clean"][member, 0], torch.from_numpy(expected).double() * 2 - 1)
        normal = streams.numpy("degrade", prompt.key, "degradation", 2, 0).standard_normal((1, 8, 8))
        assert np.array_equal(prompt.columns["degraded"].pixels, (expected + SIGMA * normal).astype("float32"))
    loss = small.score(samples, torch.arange(5), frozenset({"log_prob"})).auxiliary["supervised"]
    payload = samples.payload
    time = payload["time"].view(-1, 1, 1, 1)
    images = torch.stack([torch.from_numpy(prompt.columns["degraded"].pixels) for prompt in samples.prompts])
    inputs = torch.cat([(1 - time) * payload["clean"] + time * payload["noise"], images.double() * 2 - 1], 1)
    labels = torch.zeros(5, dtype=torch.long)
    v = small.module(inputs, payload["time"] * 1000, class_labels=labels, return_dict=False)[0]
    expected_loss = (v - (payload["noise"] - payload["clean"])).square().flatten(1).mean(1)
    assert torch.allclose(loss, expected_loss, rtol=0, atol=1e-10)


def test_rewards_find_the_target_the_image_and_the_label() -> None:
    small = domain()
    samples = sampled(small)
    values = small.reward(samples).values
    for member, image in enumerate(samples.payload["images"]):
        clean = samples.prompts[member // 3].columns["clean"].pixels[0].astype("float64")
        error = ((image.numpy() / 255 - np.round(clean * 255) / 255) ** 2).mean()
        assert values["psnr"][member] == pytest.approx(-10 * np.log10(error), abs=0.05)
    labels = [samples.prompts[place].columns["label"] for place in samples.group.tolist()]
    from groupwise_images.restoration.readers import support_vectors

    assert values["read"] == support_vectors([""] * 6, list(samples.payload["images"]), labels)
    evaluation = small.evaluate(streams=Streams(0))
    assert set(evaluation.metrics) == {"ode/reward", "ode/read", "ode/psnr"}
    # Four columns of three rows.
    assert evaluation.pictures["images"].shape == (3 * 96 + 3 * 14 + 2 * 2, 52 + 4 * 98, 3)
    assert small.trained_on.isdisjoint(small.evaluated_on)
    assert len(small.evaluated_on) == 7


def test_pairs_of_files(tmp_path: Path) -> None:
    small = paired(table(files(tmp_path)))
    assert [(prompt.key, dict(prompt.columns)) for prompt in small.prompts([0])] == [
        ("noisy/0.png", {"prompt": "noisy/0.png", "label": 0})
    ]
    samples = sampled(small)
    for prompt in samples.prompts:
        for column, part in (("degraded", "noisy"), ("clean", "clean")):
            pixels = np.asarray(Image.open(tmp_path / prompt.key.replace("noisy", part)))
            assert np.array_equal(prompt.columns[column].picture.numpy(), pixels)
    folder = {"kind": "folder", "clean": str(tmp_path / "clean"), "degraded": str(tmp_path / "noisy"), "channels": 1}
    reads = {"read": {"kind": "psnr"}}
    of_folder = paired(
        {"data": {"source": {"kind": "image_pairs", "images": {**folder, "num_held_out": 1}}}, "rewards": reads}
    )
    shown = of_folder._splits.shown(of_folder.prompts([0]), Streams(0), 0)
    assert np.array_equal(shown[0].columns["degraded"].pixels, samples.prompts[0].columns["degraded"].pixels)


def test_images_without_targets_are_rewarded_and_not_learnt_from(tmp_path: Path) -> None:
    reads = {"data": table(files(tmp_path, targets=False))["data"]}
    rewards = {"read": PAIRS["rewards"]["read"]}
    small = DiffusionDomain(validate(type(config()), {**PAIRS, **reads, "rewards": rewards}), streams=Streams(0))
    assert small.demonstrations(2, streams=Streams(0), step=0) is None
    assert "clean" not in sampled(small).prompts[0].columns
    assert small.evaluate(streams=Streams(0)).pictures["images"].shape[0] > 0


def test_a_file_is_a_prompt(tmp_path: Path) -> None:
    small = domain()
    file = files(tmp_path) / "noisy" / "2.png"

    def asked(path: object) -> Any:
        prompts = [small.asked(str(path))]
        return small.sample(prompts, 1, streams=Streams(0), step=0, settings={}, requires=frozenset())

    column = asked(file).prompts[0].columns["degraded"]
    assert np.array_equal(column.picture.numpy(), np.asarray(Image.open(file)))
    assert small.describe(asked(file), torch.tensor([0]))[0]["degraded"].shape == (8, 8)
    (tmp_path / "large").mkdir()
    large = files(tmp_path / "large", side=9) / "noisy" / "2.png"
    with pytest.raises(
        ConfigError, match=r"^prompt '.*2.png' is \[1, 9, 9\] .*\[1, 8, 8\]; resize or convert the image$"
    ):
        asked(large)
    Image.new("RGB", (8, 8)).save(tmp_path / "colour.png")
    with pytest.raises(
        ConfigError, match=r"colour.png is colour \(RGB\), and the model restores grey images; convert it$"
    ):
        asked(tmp_path / "colour.png")
    with pytest.raises(ConfigError, match=r"'nowhere.png' is neither an image of data.source nor an image file"):
        asked("nowhere.png")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": {"shape": {"sample_size": 16}}},
            r"image 'digit-\d+' is \[1, 8, 8\] \(channels, height, width\), and the model is conditioned on"
            r" \[1, 16, 16\]; resize",
        ),
        (
            {"model": {"shape": {"in_channels": 3}}},
            r"is \[1, 8, 8\] .* conditioned on \[2, 8, 8\]; .*sample_size = \[8, 8\] and"
            r" model.shape.in_channels = 2: 1 that are drawn and 1 of the image",
        ),
        (
            {"model": {"shape": {"in_channels": 4, "out_channels": 3}}},
            r"the target of 'digit-\d+' is \[1, 8, 8\] .*the model draws \[3, 8, 8\]",
        ),
        (
            {"model": {"shape": {"in_channels": 1}}},
            r"conditioned on no image; .*shape.in_channels = 2 and shape.out_channels = 1",
        ),
        ({"data": {"num_held_out": 5}}, r"data.num_held_out = 5: images are held out by their source; write 0"),
        ({"data": {"num_train": 1791}}, r"data.num_train = 1791: the source has 1790 images"),
        ({"data": {"source": {"degradation": None}}}, r"degradation is unset, and images.kind = 'digits'"),
        (
            {"data": {"source": {"degradation": {"kind": "downscale", "sigma": None}}}},
            r"degraded images are smaller than their targets",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    tree = merge(PAIRS, changes)
    degradation = tree["data"]["source"].get("degradation")
    if degradation and degradation["kind"] == "downscale":
        tree["data"]["source"]["degradation"] = {"kind": "downscale"}
    with pytest.raises(ConfigError, match=message) as caught:
        DiffusionDomain(validate(type(config()), tree), streams=Streams(0))
    assert "\n" not in str(caught.value)


def test_bad_tables_name_their_line(tmp_path: Path) -> None:
    good = files(tmp_path)
    lines = [json.loads(line) for line in (good / "pairs.jsonl").read_text().splitlines()]
    whole, large = lines, files_of_another_size(tmp_path)

    def refused(row: dict[str, Any], message: str, **changes: Any) -> None:
        (good / "pairs.jsonl").write_text("\n".join(map(json.dumps, [*lines[:1], row, *lines[2:]])))
        with pytest.raises(ConfigError, match=message) as caught:
            paired(table(good, **changes))
        assert "\n" not in str(caught.value)

    refused({"target": "clean/1.png"}, r"line 2 has no path in column 'image' \(there: \['target'\]\)")
    refused({"image": 3}, r"line 2: column 'image' is 3; write the path of an image file")
    refused({"image": "noisy/9.png"}, r"line 2: .*noisy/9.png cannot be read \(FileNotFoundError: .* or directory\)")
    refused({**lines[1], "target": large}, r"line 2: .*1.png and .*large.png are a pair of sizes \[8, 8\] and \[9, 9\]")
    refused({**lines[1], "clean": "x"}, r"'clean', under which rewards find something else; rename it, or set")
    lines = [{name: value for name, value in line.items() if name != "target"} for line in lines]
    refused(lines[1], r"target_column = 'sharp': no row of '.*' has such a column; write one", target_column="sharp")
    lines = whole
    refused(lines[0], r"rows 1 and 2 name the same image 'noisy/0.png'")
    refused(lines[1], r"0.png is grey \(L\), and data.source.images.channels = 3; write channels = 1", channels=3)
    refused(lines[1], r"that can be read: 4, and 4 are to be held out; give at least 5", num_held_out=4)
    refused({"image": large}, r"image .*large.png is \[1, 9, 9\] .*conditioned on \[1, 8, 8\]")


def files_of_another_size(folder: Path) -> str:
    Image.fromarray(np.zeros((9, 9), "uint8")).save(folder / "large.png")
    return "large.png"
