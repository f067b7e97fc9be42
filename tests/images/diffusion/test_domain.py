from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.diffusion.small import EVERYTHING, config, domain, gradient, nudge, sampled

from groupwise.config import ConfigError
from groupwise.domain.protocol import Prompt, Samples
from groupwise.records import Scored
from groupwise.streams import Streams
from groupwise_images.diffusion.domain import DiffusionDomain
from groupwise_images.diffusion.sampler import Step

ROWS = torch.arange(6)


@pytest.fixture
def small() -> DiffusionDomain:
    return domain()


SAMPLERS = [
    {"kind": "auto"},
    {"kind": "cps"},
    {"kind": "flow_sde"},
    {"kind": "dance_sde"},
    {"kind": "ddim", "eta": 0.5},
]
REDUCTIONS = ["mean", "sum", "sqrt", "per_element"]


@pytest.mark.parametrize(
    ("sampler", "reduce"),
    # Every sampler and every reduction at once; all their pairs at night.
    [
        pytest.param(sampler, reduce, marks=[] if place % 4 == number else [pytest.mark.nightly])
        for place, sampler in enumerate(SAMPLERS)
        for number, reduce in enumerate(REDUCTIONS)
    ],
    ids=lambda each: each if isinstance(each, str) else each["kind"],
)
def test_rescoring_at_unchanged_weights_gives_what_the_sampler_recorded(sampler: dict[str, Any], reduce: str) -> None:
    given = domain({"sampler": sampler, "reduce": reduce})
    samples = sampled(given)
    decisions = 3 * (64 if reduce == "per_element" else 1)
    assert samples.mask.shape == samples.step_size.shape == (6, decisions)
    scored = given.score(samples, ROWS, EVERYTHING)
    for name, value in samples.recorded.tensors().items():
        assert torch.allclose(scored.tensors()[name], value, atol=1e-12, rtol=0), name
    assert torch.equal(samples.recorded.log_prob, samples.old_log_prob)
    # Not zero: scored in another batch than it was sampled in, where a processor may round the means otherwise.
    assert max(float(value.detach().abs().max()) for value in (scored.exact_divergence, scored.mean_shift)) < 1e-12


def test_log_probs_are_those_of_a_plain_loop(small: DiffusionDomain) -> None:
    """Written down anew: one member, one transition at a time, torch's Normal."""
    samples = sampled(small)
    nudge(small)
    scored = small.score(samples, ROWS, EVERYTHING)
    for member in (0, 4):
        label = torch.tensor([samples.prompts[int(samples.group[member])].columns["label"]])
        for decision in range(3):
            s, after = 1 - decision / 4, 1 - (decision + 1) / 4
            x = samples.payload["visited"][member, decision][None]
            v = small.module(x, torch.tensor([1000 * s]), class_labels=label, return_dict=False)[0]
            clean, noise = x - s * v, x + (1 - s) * v
            angle = torch.tensor(0.6 * torch.pi / 2, dtype=torch.float64)
            mean, std = (1 - after) * clean + after * angle.cos() * noise, after * angle.sin()
            normal = torch.distributions.Normal(mean, std)
            taken = samples.payload["visited"][member, decision + 1][None]
            assert float(scored.log_prob[member, decision]) == pytest.approx(
                float(normal.log_prob(taken).mean()), abs=1e-9
            )
            old = samples.payload["mean"][member, decision]
            assert float(scored.mean_shift[member, decision]) == pytest.approx(
                float(((taken - old) / std * (mean - old)).mean()), abs=1e-9
            )
            # The reference was the policy before it was moved.
            assert float(scored.exact_divergence[member, decision]) == pytest.approx(
                float(((mean - old) ** 2 / (2 * std**2)).mean()), abs=1e-9
            )
            assert float(samples.step_size[member, decision]) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("reduce", "at_once"),
    [
        ("mean", 4),
        ("per_element", 100),
        *(pytest.param("mean", number, marks=pytest.mark.nightly) for number in (1, 5, 100)),
        *(pytest.param("per_element", number, marks=pytest.mark.nightly) for number in (1, 4, 5)),
    ],
)
def test_slices_have_the_gradient_of_the_whole(reduce: str, at_once: int) -> None:
    whole = domain({"reduce": reduce})
    samples = sampled(whole)
    nudge(whole)
    generator = torch.Generator().manual_seed(0)
    shape = samples.mask.shape
    cotangents = Scored(*(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(1)))
    more = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name in ("mean_shift", "exact_divergence", "entropy", "score_norm")
    }
    cotangents = Scored(cotangents.log_prob, **more)
    fields = whole.score(samples, ROWS, EVERYTHING).tensors()
    sum((fields[name] * value).sum() for name, value in cotangents.tensors().items()).backward()  # type: ignore[union-attr]
    expected = gradient(whole).clone()
    assert float(expected.abs().max()) > 1e-3
    sliced = whole.adapted(config({"reduce": reduce, "transitions_at_once": at_once}))
    whole.module.zero_grad()
    found = sliced.backward(samples, ROWS, cotangents)
    assert torch.allclose(gradient(whole), expected, atol=1e-12)
    assert all(torch.allclose(found.tensors()[name], value.detach(), atol=1e-12) for name, value in fields.items())
    # Scored with gradient, the slices are recomputed in the backward pass.
    whole.module.zero_grad()
    fields = sliced.score(samples, ROWS, EVERYTHING).tensors()
    sum((fields[name] * value).sum() for name, value in cotangents.tensors().items()).backward()  # type: ignore[union-attr]
    assert torch.allclose(gradient(whole), expected, atol=1e-12)


def test_a_group_may_start_from_the_same_noise() -> None:
    visited = sampled(domain({"initial_noise": "group"})).payload["visited"]
    assert torch.equal(visited[0, 0], visited[2, 0])
    assert not torch.equal(visited[0, 1], visited[2, 1])
    assert not torch.equal(visited[0, 0], visited[3, 0])


def test_a_window_trains_its_transitions_and_the_others_have_no_noise() -> None:
    given = domain({"num_steps": 6, "window": {"size": 2, "low": 2, "place": "fixed"}})
    samples = sampled(given)
    assert samples.mask.shape == (6, 2)
    assert samples.settings["first_transition"] == 2.0
    scored = given.score(samples, ROWS, EVERYTHING)
    assert torch.allclose(scored.log_prob, samples.old_log_prob, atol=1e-12)
    # Transitions 0 and 1 are Euler's: x + v (s' - s), twice.
    noise = Streams(0).generator("path", 0, samples.prompts[0].key, 0)
    x = torch.randn(3, 1, 8, 8, generator=noise, dtype=torch.float32).double()[:1]
    for index in range(2):
        v = given.module(x, torch.tensor([1000 * (1 - index / 6)]), class_labels=torch.tensor([0]), return_dict=False)[
            0
        ]
        x = x - v / 6
    assert torch.allclose(samples.payload["visited"][0, 0], x[0], atol=1e-6)


def test_a_random_window_moves_between_steps_and_is_one_for_all_rounds() -> None:
    given = domain({"num_steps": 6, "window": {"size": 1}})
    starts = [sampled(given, 1, 2, step=step).settings["first_transition"] for step in range(12)]
    assert len(set(starts)) > 2
    again = given.sample(
        given.prompts([0]), 2, streams=Streams(99), step=3, settings={}, requires=frozenset({"log_prob"})
    )
    assert again.settings["first_transition"] == starts[3]


def test_guidance_is_part_of_the_policy_that_is_rescored() -> None:
    given = domain({"guidance": 3.0})
    samples = sampled(given)
    assert torch.allclose(given.score(samples, ROWS, EVERYTHING).log_prob, samples.old_log_prob, atol=1e-12)
    x, timestep = samples.payload["visited"][:1, 0], torch.tensor([1000.0])
    condition = given.denoiser.encode([samples.prompts[0].columns])
    asked, without = (
        given.module(x, timestep, class_labels=torch.tensor([label]), return_dict=False)[0] for label in (0, 10)
    )
    assert torch.allclose(
        given.denoiser.predict(x, timestep, condition, 3.0), without + 3 * (asked - without), atol=1e-12
    )
    # A value from a schedule is stored with the members it was used for.
    other = given.sample(
        given.prompts([0]), 2, streams=Streams(0), step=0, settings={"guidance": 1.5}, requires=EVERYTHING
    )
    rescored = given.score(given.with_reference(other), torch.arange(2), EVERYTHING).log_prob
    assert torch.allclose(rescored, other.old_log_prob, atol=1e-12)


def test_rewards_see_images_and_columns(small: DiffusionDomain) -> None:
    samples = sampled(small)
    images = samples.payload["images"]
    assert images.dtype == torch.uint8
    assert images.shape == (6, 8, 8)
    assert small.reward(samples).values["bright"] == [
        pytest.approx(float(image.double().mean()) / 255) for image in images
    ]
    records = small.describe(samples, torch.tensor([4]))
    assert records[0]["prompt"] == "the digit 1"
    assert torch.equal(records[0]["image"], images[4])


def test_a_typed_prompt_is_the_known_one_that_reads_the_same(small: DiffusionDomain) -> None:
    def labels(text: str) -> Samples:
        return small.sample(
            [Prompt("typed", {"prompt": text})],
            1,
            streams=Streams(0),
            step=0,
            settings={},
            requires=frozenset({"log_prob"}),
        )

    assert labels("the digit 7").prompts[0].columns["label"] == 7
    with pytest.raises(ConfigError, match="'label'"):
        labels("the digit seven")


def test_evaluation_is_from_the_same_noise_whatever_the_run(small: DiffusionDomain) -> None:
    first, again = small.evaluate(streams=Streams(0)), small.evaluate(streams=Streams(5))
    assert first.metrics == again.metrics
    assert set(first.metrics) <= set(small.metric_names)
    assert torch.equal(first.pictures["images"], again.pictures["images"])
    nudge(small)
    assert small.evaluate(streams=Streams(0)).metrics != first.metrics
    other = domain({"evaluation": {"num_images": 2, "num_prompts": 3, "seed": 1}})
    assert other.evaluate(streams=Streams(0)).metrics != first.metrics


def test_what_is_saved_is_a_diffusers_folder_that_predicts_the_same(small: DiffusionDomain, tmp_path: Path) -> None:
    from diffusers import DiTTransformer2DModel, FlowMatchEulerDiscreteScheduler

    nudge(small)
    small.save(tmp_path / "model")
    assert sorted(path.suffix for path in (tmp_path / "model").rglob("*") if path.is_file()) == [
        ".json",
        ".json",
        ".safetensors",
    ]
    plain = DiTTransformer2DModel.from_pretrained(
        tmp_path / "model", subfolder="transformer", torch_dtype=torch.float64
    )
    assert (
        FlowMatchEulerDiscreteScheduler.from_pretrained(tmp_path / "model", subfolder="scheduler").config.shift == 1.0
    )
    x, t, label = torch.ones(1, 1, 8, 8, dtype=torch.float64), torch.tensor([300.0]), torch.tensor([2])
    assert torch.equal(plain.eval()(x, t, class_labels=label).sample, small.module(x, t, class_labels=label).sample)
    again = DiffusionDomain(
        config({"model": {"kind": "pretrained", "path": str(tmp_path / "model"), "dtype": "float64"}}),
        streams=Streams(9),
    )
    assert again.evaluate(streams=Streams(0)).metrics == small.evaluate(streams=Streams(0)).metrics


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sampler": {"kind": "ode"}}, "no noise"),
        ({"window": {"size": 4}}, "smaller size"),
        ({"num_steps": 1}, "num_steps"),
        ({"rewards": {"bright": {"role": "judge"}}}, "nothing to train on"),
        (
            {"model": {"scheduler": {"name": "DDIMScheduler"}}, "sampler": {"kind": "flow_sde"}},
            "write auto, ddim or cps",
        ),
        (
            {
                "model": {"scheduler": {"name": "DDIMScheduler", "settings": {"clip_sample": True}}},
                "sampler": {"kind": "ddim"},
            },
            "clip_sample = false",
        ),
        ({"model": {"shape": {"num_embeds_ada_norm": 5}}}, "classes 0 to 4"),
        ({"model": {"shape": {"sample_size": 16}}}, "images to learn from"),
        ({"model": {"shape": {"patch_sise": 2}}}, "patch_sise"),
        ({"model": {"kind": "pretrained", "path": "nowhere"}}, "nowhere"),
        ({"data": {"num_train": 11}}, "source has 10"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_a_remedy(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        domain(changes).demonstrations(1, streams=Streams(0), step=0)


def test_a_noise_predicting_model_trains_by_ddim() -> None:
    given = domain({"model": {"scheduler": {"name": "DDIMScheduler"}}, "sampler": {"kind": "ddim"}})
    samples = sampled(given)
    assert bool(samples.old_log_prob.isfinite().all())
    assert torch.allclose(given.score(samples, ROWS, EVERYTHING).log_prob, samples.old_log_prob, atol=1e-9)
    schedule = given.denoiser.schedule(4)
    assert float(Step.of(schedule, torch.tensor([0])).size) == pytest.approx(0.25)


def test_a_model_that_predicts_nothing_finite_is_named() -> None:
    broken = domain()
    with torch.no_grad():
        next(iter(broken.module.parameters())).fill_(float("nan"))
    for draw in (lambda: sampled(broken), lambda: broken.evaluate(streams=Streams(0))):
        with pytest.raises(ConfigError, match=r"model: it predicts NaN or infinity; its weights in domain.model.path"):
            draw()
