"""The restoration domain: degraded images in, groups of restored ones out, the same pixels (or gates) rescored under
the live network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.pass_sizes import EVALUATION, SAMPLING, UPDATE, PassSizes, joined_rows, pass_budget
from groupwise.domain.protocol import Evaluation, Peers, Prompt, Samples
from groupwise.records import Scored
from groupwise.reward import Rewards, RewardTable
from groupwise.streams import Streams
from groupwise.transfer import moved
from groupwise_images.domain import ImageDomain
from groupwise_images.image_evaluation import JudgedImages, as_pictures, images_at_once, judged_in_chunks
from groupwise_images.image_source.base import Picture, Pictures, as_float
from groupwise_images.repeats import check_repeats
from groupwise_images.restoration import evaluate as evaluate_module
from groupwise_images.restoration import loading, network_check
from groupwise_images.restoration.config import Distance, RestorationConfig
from groupwise_images.restoration.evaluate import Shown, shown_places
from groupwise_images.restoration.network_check import CutNetwork
from groupwise_images.restoration.policy import Draws, Fields, GatePolicy, Pixels
from groupwise_images.restoration.tiles import input_sizes, restore

# Scores members again: the network sees each degraded image once, and what a member holds is read a few at a time.

_SHOWN = frozenset({"degraded", "images", "clean"})
"""Entries of a payload that scoring does not read per member. It takes the degraded images once per group; the others
are for people and rewards.
"""


def distinct(samples: Samples, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Selects the degraded image of each group of members `rows` once, and its index for each of these members, so that
    a group is one pass of the network.
    """
    groups, place = samples.group[rows].unique(return_inverse=True)
    # Any member of a group will do: all have the same image.
    member = torch.zeros(len(groups), dtype=torch.long, device=place.device).scatter_(0, place, rows.to(place.device))
    return samples.payload["degraded"][member], place


def rescored(
    compute: Callable[[Tensor, Mapping[str, Any]], Fields], samples: Samples, rows: Tensor, passes: PassSizes
) -> Fields:
    """Computes the fields of members `rows`, `[B, ...]` each, a few members at a time; with gradient where it is on.

    Args:
        compute: fields of members by their places among `rows`, `[b]`, and by their payload.
        samples: the samples whose payload is read.
        rows: `[B]`, none negative.
        passes: how many at a time.
    """

    def fields_of(places: Tensor) -> Fields:
        members = rows[places.to(rows.device)]
        payload = {
            name: value[members.to(value.device)] for name, value in samples.payload.items() if name not in _SHOWN
        }
        return compute(places, payload)

    places = torch.arange(len(rows), device=samples.mask.device)
    return joined_rows(passes.apply(fields_of, places), len(rows))


_REMEDY = "a smaller domain.patch, a smaller domain.tile.size, or a smaller network"


@final
class RestorationDomain(ImageDomain):
    """A restoration network with its images and rewards; see `groupwise.Domain`.

    Args:
        config: network, images, policy, rewards, evaluation.
        streams: the random streams of the run; fresh weights are drawn from it.
        device: where the network lives.
        parent: a domain whose network is shared, where only other settings changed.

    Raises:
        ConfigError: images, a degradation or a network that cannot be used.
        RewardError: a reward that cannot be opened, or that needs a column which the images lack.
    """

    demonstrates_prompts = True
    auxiliary = frozenset({"supervised", "consistency"})
    memory_remedy = f"{_REMEDY}, or a smaller train.demonstrations_per_step"

    def __init__(
        self,
        config: RestorationConfig,
        *,
        streams: Streams,
        device: str | torch.device = "cpu",
        parent: RestorationDomain | None = None,
    ) -> None:
        self.config, self._streams = config, streams
        same_source = parent is not None and parent.config.source == config.source
        self._pictures: Pictures = parent._pictures if parent is not None and same_source else config.source.read()
        self.module = (
            loading.open_network(config.model, streams, torch.device(device)) if parent is None else parent.module
        )
        self.scale = loading.resolve(config.model).network.scale
        try:
            config.check_scale(self.scale)
        except ValueError as error:  # a folder's network, whose scale the configuration does not state
            raise ConfigError(f"domain: {error}") from error
        self._policy = config.policy.open()
        self.pass_sizes = self._opened_pass_sizes(parent)
        self._network = CutNetwork(self.module, self.pass_sizes)
        self.unit, self.supplies = self._policy.unit, self._policy.supplies
        self._train = self._pictures.train[: config.num_train]
        self._held_out = self._pictures.held_out[: config.evaluation.num_images]
        self._by_key = {picture.key: picture for picture in (*self._train, *self._held_out)}
        self.rewards = Rewards(config.rewards)
        self.rewards.check_columns([*self._train[0].columns, "clean", "degraded"])
        self._check()

    @property
    def num_prompts(self) -> int:
        return len(self._train)

    @property
    def remarks(self) -> list[str]:
        """Sentences on images that were left out, on trained weights that seem to follow another convention, and on
        rewards.
        """
        return [*self._pictures.remarks, *self.rewards.remarks]

    @property
    def rewards_decisions(self) -> str:
        """The key of the first reward that is a map over decisions that are blocks of pixels; empty where none is."""
        if not isinstance(self.config.policy, Pixels):
            return ""
        maps = (
            name
            for name, reward in self.config.rewards.items()
            if reward.trains and getattr(reward, "result", "number") == "map"
        )
        return next((f'domain.rewards.{name}.result = "map"' for name in maps), "")

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Every metric that `evaluate` may report."""
        return tuple(evaluate_module.metric_names(self.config.rewards, self.scale))

    @property
    def trained_on(self) -> frozenset[str]:
        """Hashes of the training images: a file may be in a folder twice under two names."""
        return frozenset(picture.content for picture in self._train)

    @property
    def evaluated_on(self) -> frozenset[str]:
        """Hashes of the images that `evaluate` restores."""
        return frozenset(picture.content for picture in self._held_out)

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        """Returns training images by their place."""
        return [_prompt(self._train[index]) for index in indices]

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        *,
        streams: Streams,
        step: int,
        settings: Mapping[str, float],
        requires: frozenset[str],
    ) -> Samples:
        """Draws a group for each image; a member's noise is keyed by `("restore", step, key, member)`, so its pixels
        depend on nothing else.

        Settings are `sigma`, and `top_k = 1` for the network's own output.
        """
        clean, degraded = self._pairs([self._of(prompt) for prompt in prompts], streams, step)
        generators = [
            streams.generator("restore", step, prompt.key, member) for prompt in prompts for member in range(group_size)
        ]
        self.fit_passes()
        draws = Draws(group_size, None if settings.get("top_k") == 1 else generators, settings.get("sigma"))
        drawn = self._policy.draw(self._network, degraded, draws, requires)
        group = torch.arange(len(prompts), device=degraded.device).repeat_interleave(group_size)
        log_prob = drawn.fields["log_prob"]
        if not log_prob.isfinite().all():
            place = int((~log_prob.isfinite()).any(1).nonzero()[0]) // group_size
            raise ConfigError(
                f"model: at step {step} the network gives NaN or infinity for image {prompts[place].key!r}; its"
                " training has diverged (a lower optimiser.learning_rate), or it cannot restore such an image"
            )
        return Samples(
            prompts=list(prompts),
            group=group,
            mask=torch.ones_like(log_prob, dtype=torch.bool),
            old_log_prob=log_prob,
            recorded=Scored.from_tensors(drawn.fields),
            # One draw from the network's distribution is a transition that takes all of the time.
            step_size=torch.ones_like(log_prob) if "step_size" in self.supplies else None,
            payload={
                **drawn.payload,
                "degraded": degraded[group],
                "images": as_pictures(drawn.images),
                "clean": as_pictures(clean)[group.cpu()],
            },
            settings=dict(settings),
        )

    @torch.no_grad()
    def with_reference(self, samples: Samples) -> Samples:
        """Adds the active network's output and what the exact divergence needs of it to the samples; see
        `ComparesExactly`.
        """
        degraded, row = distinct(samples, torch.arange(len(samples)))
        payload = {**samples.payload, **self._policy.reference(self._network, degraded, row, samples.payload)}
        if "reference_mean" in payload:
            payload["reference_output"] = payload["reference_mean"]
        else:
            payload["reference_output"] = self._network(degraded)[row]
        ones = torch.ones(len(samples), dtype=torch.float64, device=samples.mask.device)
        counts = {**samples.auxiliary_count, "consistency": ones}
        return replace(samples, recorded=None, payload=payload, auxiliary_count=counts)

    def reward(self, samples: Samples) -> RewardTable:
        """Computes every reward of every member; a map is averaged over the pixels of each decision."""
        places = samples.group.tolist()
        pictures, policy = [self._of(samples.prompts[place]) for place in places], self.config.policy
        images, clean = list(samples.payload["images"]), list(samples.payload["clean"])
        degraded = list(as_pictures(samples.payload["degraded"]))
        table = evaluate_module.score(self.rewards, pictures, images, clean, degraded, judges=False)
        return evaluate_module.pooled(table, policy.block if isinstance(policy, Pixels) else None)

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        """Scores members `rows`: fields `[B, T]`; `auxiliary["supervised"]` for demonstrations,
        `auxiliary["consistency"]` where the samples carry the reference's output.

        Members are scored by the network as it sampled them and as it ships: without dropout, and by a batch
        normalisation's running statistics. It stays in that mode for the backward pass, in which a network may compute
        its activations again; demonstrations are scored, and trained on, in training mode.
        """
        rows, demonstrated = rows.clamp(min=0), "target" in samples.payload
        self.module.train(demonstrated)
        if demonstrated:
            selected = samples.select(rows)
            output = self._training_output(selected.payload["degraded"])
            distance = _distance(output, selected.payload["target"], self.config.supervised)
            if self.config.differentiable is not None:
                pictures = [self._of(selected.prompts[place]) for place in selected.group.tolist()]
                distance = distance + self.config.differentiable(output, evaluate_module.columns(pictures))
            return Scored(selected.old_log_prob, auxiliary={"supervised": distance})
        degraded, image = distinct(samples, rows)
        predicted = self._policy.predict(self._network, degraded)
        output = None
        if "consistency" in samples.auxiliary_count:
            output = self._network(degraded) if isinstance(self._policy, GatePolicy) else predicted[0]

        def fields(places: Tensor, payload: Mapping[str, Tensor]) -> dict[str, Tensor]:
            values = self._policy.fields([value[image[places]] for value in predicted], payload, requires)
            if output is not None:
                distance = _distance(output[image[places]], payload["reference_output"], self.config.consistency)
                values["auxiliary.consistency"] = distance
            return values

        return Scored.from_tensors(rescored(fields, samples, rows, self.pass_sizes))

    def demonstrations(self, size: int, *, streams: Streams, step: int) -> Samples:
        """Draws `size` training images with their targets; without replacement as long as there are enough.

        Raises:
            ConfigError: in training mode, in which demonstrations are scored, the network gives something other than
                images.
        """
        places = streams.numpy("demonstrations", step).choice(
            len(self._train), size=size, replace=size > len(self._train)
        )
        chosen = [self._train[place] for place in places.tolist()]
        clean, degraded = self._pairs(chosen, Streams(streams.seed("demonstrations")), step, numbers=range(size))
        empty = torch.zeros(size, 1, device=clean.device, dtype=clean.dtype)
        return Samples(
            prompts=[_prompt(picture) for picture in chosen],
            group=torch.arange(size, device=clean.device),
            mask=torch.zeros_like(empty, dtype=torch.bool),
            old_log_prob=empty,
            payload={"degraded": degraded, "target": clean},
            auxiliary_count={"supervised": torch.ones(size, dtype=torch.float64, device=clean.device)},
        )

    @torch.no_grad()
    def evaluate_shared(self, *, streams: Streams, peers: Peers | None) -> Evaluation:
        """Evaluates the network's own output (the policy's mode): rewards, judges, PSNR, SSIM, a picture."""
        config = self.config.evaluation
        self.fit_passes()
        size = self._images_at_once // config.repeats or 1
        judged = judged_in_chunks(self._held_out, size, self._judged, peers)
        return evaluate_module.evaluation(config, self._held_out, judged)

    @property
    def _images_at_once(self) -> int:
        """Images that an evaluation restores and judges before it lets them go: whole passes."""
        largest = max((picture.clean for picture in self._held_out), key=lambda image: image.size)
        rows = self.pass_sizes.rows(EVALUATION) if max(largest.shape[1:]) <= self.config.tile.size * self.scale else 1
        return images_at_once(largest.size, rows) // rows * rows

    def _judged(self, placed: Sequence[tuple[int, Picture]]) -> JudgedImages:
        """Degrades some held-out images, each as often as it is evaluated, restores and judges them.

        Args:
            placed: images with their places among the held-out ones.
        """
        shown = shown_places(self._held_out, self.config.evaluation)
        repeats, streams = self.config.evaluation.repeats, Streams(self.config.seed)
        places = [place * repeats + number for place, _ in placed for number in range(repeats)]
        pictures = [picture for _, picture in placed for _ in range(repeats)]
        targets = [as_float(picture.clean) for picture in pictures]
        degraded = [
            self._degraded(picture, target, streams, "evaluate", place % repeats)
            for place, picture, target in zip(places, pictures, targets, strict=True)
        ]
        device, dtype = self._place()
        restored = restore(self.module, degraded, self.config.tile, self.pass_sizes, device, dtype, self.scale)
        for picture, image in zip(pictures, restored, strict=True):
            if not np.isfinite(image).all():
                raise ConfigError(
                    f"model: the network gives NaN or infinity for held-out image {picture.key!r}; are its weights"
                    " whole, and has its training diverged (a lower optimiser.learning_rate)?"
                )
        images, clean, given = (evaluate_module.picture_list(values) for values in (restored, targets, degraded))
        table = evaluate_module.score(self.rewards, pictures, images, clean, given, judges=True)
        names = evaluate_module.fidelity_names(self.config.rewards)
        table = replace(evaluate_module.with_fidelity(table, restored, targets, names), maps={})
        kept = zip(places, map(Shown, given, images, clean), strict=True)
        baseline = {}
        if self.scale > 1:
            baseline = evaluate_module.baseline(degraded, targets, self.scale, self.config.rewards)
        return JudgedImages({place: image for place, image in kept if place in shown}, table, baseline)

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        """Describes members for people: the restored image, the degraded one and the target."""
        read = moved({"group": samples.group[rows], "degraded": samples.payload["degraded"][rows]})
        prompts = [samples.prompts[group] for group in read["group"].tolist()]
        return [
            {
                "prompt": prompt.columns["prompt"],
                "key": prompt.key,
                "image": samples.payload["images"][row],
                "degraded": degraded,
                "clean": samples.payload["clean"][row],
                "settings": dict(samples.settings),
            }
            for row, prompt, degraded in zip(rows.tolist(), prompts, as_pictures(read["degraded"]), strict=True)
        ]

    def save(self, folder: Path) -> None:
        """Writes weights as safetensors and the architecture next to them; see `loading.save`."""
        loading.save(self.module, self.config.model, folder)

    def degraded_example(self) -> Tensor:
        """Returns the first training image as the network is given it, `[1, C, H, W]`."""
        return self._pairs(self._train[:1], self._streams, 0)[1]

    def fit_passes(self, *, reserved_bytes: float = 0.0) -> None:
        """Measures the images in a pass of sampling, of an update and of an evaluation, where they are not known.

        Args:
            reserved_bytes: bytes that will be allocated later, such as an optimiser's moments.
        """
        if all(self.pass_sizes.knows(kind) for kind in (SAMPLING, UPDATE, EVALUATION)):
            return
        device, dtype = self._place()
        budget, tile = pass_budget(device, reserved_bytes), self.config.tile
        degraded = self.degraded_example()
        sides = {tuple(side // self.scale for side in picture.clean.shape[1:]) for picture in self._held_out}
        largest = max(
            (size for height, width in sides for size in input_sizes(height, width, tile)),
            key=lambda size: size[0] * size[1],
            default=tuple(degraded.shape[2:]),
        )
        whole = torch.zeros(1, degraded.shape[1], *largest, device=device, dtype=dtype)
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]

        def passed(images: Tensor, num: int) -> Any:
            batch = images.expand(num, -1, -1, -1)
            if not isinstance(self._policy, GatePolicy):
                return self.module(batch)
            network: Any = self.module
            return network.controls(batch)[0] if torch.is_grad_enabled() else network(batch)

        def differentiate(num: int) -> None:
            with torch.enable_grad():
                torch.autograd.grad(passed(degraded, num).sum(), trained, allow_unused=True)

        measure = partial(self.pass_sizes.measure, device=device, budget_bytes=budget)
        training = self.module.training
        self.module.eval()
        try:
            with torch.no_grad():
                measure(SAMPLING, partial(passed, degraded))
                measure(EVALUATION, partial(passed, whole))
            measure(UPDATE, differentiate, most=None)
        finally:
            self.module.train(training)

    def _opened_pass_sizes(self, parent: RestorationDomain | None) -> PassSizes:
        """Returns the parent's sizes where passes are the same, else unknown ones."""
        at_once = self.config.evaluation.batch_size
        stated = {} if at_once is None else {EVALUATION: at_once}
        if parent is not None and parent.pass_sizes.stated == stated:
            names = ("source", "patch", "policy", "tile")
            if all(getattr(parent.config, name) == getattr(self.config, name) for name in names):
                return parent.pass_sizes
        return PassSizes(stated, _REMEDY)

    def _place(self) -> tuple[torch.device, torch.dtype]:
        parameter = next(self.module.parameters())
        return parameter.device, parameter.dtype

    def _of(self, prompt: Prompt) -> Picture:
        if prompt.key not in self._by_key:
            raise ConfigError(
                f"prompt {prompt.key!r} is no image of the source; leave --prompt out, and images of the source are"
                " restored"
            )
        return self._by_key[prompt.key]

    def _pairs(
        self, pictures: Sequence[Picture], streams: Streams, step: int, numbers: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns clean and degraded images `[P, C, H, W]`, cut and degraded as the configuration states."""
        clean, degraded = [], []
        for place, picture in enumerate(pictures):
            number = 0 if numbers is None else numbers[place]
            target, degraded_patch = self._cut(picture, streams.numpy("patch", step, picture.key, number))
            key = ("degradation", step, number) if self.config.fresh else ("degradation", 0, 0)
            source = streams if self.config.fresh else Streams(self.config.seed)
            clean.append(target)
            degraded.append(self._degraded(picture, target, source, *key) if degraded_patch is None else degraded_patch)
        device, dtype = self._place()
        clean, degraded = (np.ascontiguousarray(np.stack(values)) for values in (clean, degraded))
        return torch.from_numpy(clean).to(device, dtype), torch.from_numpy(degraded).to(device, dtype)

    def _cut(self, picture: Picture, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None]:
        patch = self.config.patch
        if patch is None:
            return as_float(picture.clean), None if picture.degraded is None else as_float(picture.degraded)
        scale = self.scale
        # Places in the degraded image, so that a pair is cut where its pixels belong together.
        top = int(random.integers((picture.clean.shape[1] - patch) // scale + 1))
        left = int(random.integers((picture.clean.shape[2] - patch) // scale + 1))
        clean = as_float(picture.clean[_square(top * scale, left * scale, patch)])
        if picture.degraded is None:
            return clean, None
        return clean, as_float(picture.degraded[_square(top, left, patch // scale)])

    def _degraded(self, picture: Picture, clean: np.ndarray, streams: Streams, *key: int | str) -> np.ndarray:
        degrade = self.config.degrade
        if degrade is None:
            assert picture.degraded is not None, "the source gives pairs"
            return as_float(picture.degraded)
        return degrade(clean, streams.numpy("degrade", picture.key, *key))

    def _check(self) -> None:
        patch = self.config.patch
        sizes = {picture.clean.shape[1:]: picture.file or repr(picture.key) for picture in reversed(self._train)}
        if patch is None and len(sizes) > 1:
            (left_size, left_name), (right_size, right_name) = list(sizes.items())[:2]
            sizes_text = f"{left_name} is {list(left_size)} pixels and {right_name} {list(right_size)}"
            raise ConfigError(f"source: {sizes_text}; images of different sizes need domain.patch = a common square")
        if patch is None or self.config.degrade is not None:
            whole = self._held_out if patch is not None else (*self._train, *self._held_out)
            for picture in whole:
                if any(side % self.scale for side in picture.clean.shape[1:]):
                    raise ConfigError(
                        f"source: image {picture.file or repr(picture.key)} has {list(picture.clean.shape[1:])} pixels,"
                        f" whose sides are no multiples of {self.scale}, by which the network enlarges; cut them"
                    )
        for size, name in sizes.items():
            if patch is not None and min(size) < patch:
                raise ConfigError(
                    f"patch = {patch}: image {name} has {list(size)} pixels; write at most {min(size)}, or leave the"
                    " image out"
                )
        if self.config.degrade is not None:
            check_repeats(self.config.degrade, self._cut(self._train[0], np.random.default_rng(0))[0])
        clean, degraded = self._pairs(self._train[:1], self._streams, 0)
        training = self.module.training
        self.module.eval()
        try:
            network_check.try_network(self.module, degraded, self._train[0].key, self.scale)
            self._policy.check(self.module, degraded, clean)
            shapes = [
                (len(picture.clean), *(side // self.scale for side in picture.clean.shape[1:]))
                for picture in self._held_out
            ]
            network_check.try_sizes(self.module, degraded, shapes, self.config.tile, self.scale)
            if self.config.differentiable is not None:
                self.config.differentiable(self.module(degraded), evaluate_module.columns(self._train[:1]))
        finally:
            self.module.train(training)

    def _training_output(self, degraded: Tensor) -> Tensor:
        try:
            output = self.module(degraded)
        except ValueError as error:
            # A batch normalisation refuses a single value a channel.
            more = "; more images at once may help (train.demonstrations_per_step, train.micro_batch_members)"
            hint = more if len(degraded) == 1 else ""
            raise ConfigError(
                f"model: the network fails in training mode on images of {list(degraded.shape)}: {error}{hint}"
            ) from error
        return network_check.checked(output, degraded, " in training mode", self.scale)


def _square(top: int, left: int, side: int) -> tuple[slice, slice, slice]:
    return slice(None), slice(top, top + side), slice(left, left + side)


def _prompt(picture: Picture) -> Prompt:
    return Prompt(picture.key, {**picture.columns, "prompt": picture.key})


def _distance(output: Tensor, target: Tensor, kind: Distance) -> Tensor:
    """Computes the mean distance over each image's pixels and channels, `[B]`."""
    gap = output - target
    return (gap.abs() if kind == "l1" else gap.square()).flatten(1).mean(1)
