"""The diffusion domain: prompts in, groups of images out, the same transitions rescored under the live policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.pass_sizes import (
    DECODING,
    ENCODING,
    SAMPLING,
    UPDATE,
    PassSizes,
    joined,
    joined_rows,
    pass_budget,
)
from groupwise.domain.protocol import Evaluation, Peers, Prompt, Samples
from groupwise.learner.local import LocalLearner
from groupwise.objective.matching import CopyMatching
from groupwise.records import Scored
from groupwise.reward import Rewards, RewardTable
from groupwise.streams import Streams
from groupwise_images.diffusion import copies, scorer, stepwise
from groupwise_images.diffusion import evaluate as evaluate_module
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.denoiser import Denoiser
from groupwise_images.diffusion.evaluate import evaluated_images, prompts_at_once
from groupwise_images.diffusion.image_prompts import EncodedPrompts, restored_picture
from groupwise_images.diffusion.judged_images import as_strips, judge
from groupwise_images.diffusion.models.open import open_denoiser
from groupwise_images.diffusion.path import (
    Drawn,
    SamplerGraph,
    draw,
    draw_with_graph,
    noise_of,
    should_keep_graph,
    versions,
)
from groupwise_images.diffusion.scorer import Scorer
from groupwise_images.diffusion.splits import Splits, split
from groupwise_images.diffusion.supervised import demonstrations, image_demonstrations, supervised_loss
from groupwise_images.diffusion.transition import Transition, replaced_remark
from groupwise_images.domain import ImageDomain
from groupwise_images.image_evaluation import JudgedImages, as_pictures, judged_in_chunks

# The meaning of a clip in the unit of the log-probs.

_UNITS = {
    "mean": ("nats per transition, mean over {size} elements", "a mean over", -0.5),
    "sum": ("nats per transition", "a sum over", 0.5),
    "sqrt": ("nats per transition, sum over {size} elements divided by its root", "a sum over the root of", 0),
    "per_element": ("nats per element of a transition", "one for each of", 0),
}
"""The ways to reduce over elements: the unit of a log-prob, the reduction in words, and the power of `D` by which a
shift of every element spreads the log-ratio.
"""


def clip_remark(reduce: str, elements: int) -> tuple[str, float]:
    """Returns the unit of the log-probs in a sentence, and the shift of every element, in standard deviations, that a
    clip of 1 holds.

    A shift of `delta` standard deviations in every element spreads the log-ratio by `delta / sqrt(D)`, `delta sqrt(D)`,
    `delta`, `delta` for mean, sum, sqrt and per_element. Flow-GRPO's clip of 1e-4 on means over 16,384 elements holds
    shifts of .0128.

    Example:
        >>> clip_remark("mean", 64)
        ('log-probs: a mean over 64 elements', 8.0)
    """
    _, reduction, power = _UNITS[reduce]
    return f"log-probs: {reduction} {elements} elements", float(elements) ** -power


_REMEDY = (
    'domain.model.dtype = "bfloat16", a smaller domain.model.size, train.gradient_checkpointing = true, or an adapter'
    " (domain.model.lora)"
)


@final
class DiffusionDomain(ImageDomain):
    """A diffusion model with its prompts and rewards; see `groupwise.Domain`.

    A decision is one transition drawn with noise (or one element of it, `reduce = "per_element"`). The last transition
    is deterministic and never trained.

    Args:
        config: model, prompts, rewards, sampler, evaluation.
        streams: the random streams of the run; fresh weights are drawn from it.
        device: where the model lives.
        parent: a domain whose model is shared, where only other settings changed.

    Raises:
        ConfigError: prompts or a model that cannot be used.
        RewardError: a reward that cannot be opened, or that needs a column which the prompts lack.
    """

    keeps_graph = True
    supplies = frozenset(
        {"log_prob", "entropy", "score_norm", "mean_shift", "old_divergence", "exact_divergence", "step_size"}
    )
    copy_fields = copies.FIELDS
    auxiliary = frozenset({"supervised"})
    memory_remedy = f"domain.transitions_at_once = 1, {_REMEDY}"

    def __init__(
        self,
        config: DiffusionConfig,
        *,
        streams: Streams,
        device: str | torch.device = "cpu",
        parent: DiffusionDomain | None = None,
    ) -> None:
        self.config, self._streams = config, streams
        same_data = parent is not None and parent.config.data == config.data
        self._splits: Splits = parent._splits if parent is not None and same_data else split(config.data)
        self.denoiser: Denoiser = (
            open_denoiser(config, streams, torch.device(device)) if parent is None else parent.denoiser
        )
        self.module = self.denoiser.module
        self._scorer = Scorer(self.denoiser) if parent is None else parent._scorer
        self.learner = LocalLearner(self.module, self._scorer.shard) if parent is None else parent.learner
        self._schedule = self.denoiser.schedule(config.num_steps)
        self._elements = math.prod(self.denoiser.latent_shape)
        self.unit = _UNITS[config.reduce][0].format(size=self._elements)
        self.clip_remark, self.clip_shift = clip_remark(config.reduce, self._elements)
        self._guided = config.guidance != 1 or any(
            value != 1 for schedule in config.sampling_schedule.values() for value in schedule.extremes()
        )
        guidance = config.evaluation.guidance
        # Guidance makes several rows of the model of one row here, unless it is an input.
        self._rows_of_model = self.denoiser.guided_rows if self._guided or guidance not in (None, 1) else 1
        self._encoded = EncodedPrompts(self.denoiser) if parent is None else parent._encoded
        self.pass_sizes = self._opened_pass_sizes(parent)
        self._sampler_graph: SamplerGraph | None = None
        self._check()
        self.rewards = Rewards(config.rewards)
        self.rewards.check_columns(self._splits.columns)

    @property
    def num_prompts(self) -> int:
        return len(self._splits.train)

    @property
    def draws_in_shards(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True where weights are sharded."""
        return self._scorer.sharded

    @property
    def remarks(self) -> list[str]:
        """Sentences on the precision of frozen parts, on the scheduler, on prompts and images, and on rewards."""
        precision = [self.denoiser.precision] if self.denoiser.precision else []
        precision += replaced_remark(self.denoiser.scheduler)
        if self._num_cut:
            words = f"{self._num_cut} of {self.num_prompts} are longer than the text encoder reads: their ends are cut"
            precision.append(f"training prompts: {words}")
        return [*precision, *self._splits.remarks(self.config), *self.rewards.remarks]

    @cached_property
    def _num_cut(self) -> int:
        return self.denoiser.num_cut([prompt.columns for prompt in self._splits.train])

    @property
    def trained_on(self) -> frozenset[str]:
        """Texts of the training prompts, and of those whose images supervised steps learn from; hashes of images that
        are prompts.
        """
        image_prompts = self._splits.image_prompts if self.config.demonstrations is not None else ()
        return self._splits.contents((*self._splits.train, *image_prompts))

    @property
    def evaluated_on(self) -> frozenset[str]:
        """Texts (hashes of images) of the prompts that `evaluate` asks: the training prompts where none is held out."""
        return self._splits.contents(self._splits.evaluated[: self.config.evaluation.num_prompts])

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        """Returns training prompts by their place."""
        return [self._splits.train[index] for index in indices]

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
        """Draws a group for each prompt; the noise of a member is keyed by `("path", step, prompt key, member)`, so its
        image depends on nothing else.

        Without `log_prob` in `requires` no transition is a decision, and all are drawn without noise.
        """
        config, schedule, device = self.config, self._schedule, self.denoiser.device
        prompts = self._splits.shown(self._with_source_columns(prompts), streams, step)
        guidance = float(settings.get("guidance", config.guidance))
        scored = "log_prob" in requires
        first_decision, num = self._window(step)
        num = num if scored else 0
        self.fit_passes(prompts[:1])
        keys = [(prompt.key, member) for prompt in prompts for member in range(group_size)]
        conditions = self._encoded.of(prompts)
        group = torch.arange(len(prompts), device=device).repeat_interleave(group_size)

        def drawn_paths(rows: Tensor, keep: list[Transition] | None = None) -> Drawn:
            initial, noise = self._noise(streams, step, [keys[row] for row in rows.tolist()], num)
            return draw(
                self._scorer.denoiser,
                schedule,
                config.sampler,
                initial,
                noise,
                conditions.select(group[rows]),
                guidance=guidance,
                first=first_decision,
                reduce=config.reduce,
                # Stepwise rewards read the means too.
                requires=requires | ({"mean_shift"} if config.stepwise else frozenset()),
                keep=keep,
            )

        self._sampler_graph, drawn = None, None
        if scored and self._keeps_graph(len(keys) * num):
            drawn, self._sampler_graph = draw_with_graph(drawn_paths, len(keys), self.module, self.pass_sizes)
        if drawn is None:
            rows = torch.arange(len(keys), device=device)
            drawn = Drawn.joined(self._scorer.draw(self.pass_sizes, drawn_paths, rows), len(rows))
        call = -1 if self._sampler_graph is None else self._sampler_graph.call
        payload: dict[str, Any] = {
            "latents": drawn.latents,
            "first": torch.full((len(keys),), first_decision, device=device),
            "guidance": torch.full((len(keys),), guidance, dtype=torch.float64, device=device),
            "images": self._decode(drawn.latents),
            "call": torch.full((len(keys),), call, device=device),
            "row": torch.arange(len(keys), device=device),
        }
        if drawn.mean is not None:
            payload["mean"] = drawn.mean
        settings_used = {"guidance": guidance, "first_transition": float(first_decision)}
        if self._num_cut:
            settings_used["truncated_prompts"] = self._num_cut / self.num_prompts
        nothing = torch.zeros(len(keys), 1, device=device, dtype=drawn.latents.dtype)
        samples = Samples(list(prompts), group, nothing > 0, nothing, payload=payload, settings=settings_used)
        return self._with_transitions(samples, drawn, requires) if scored else samples

    def _window(self, step: int) -> tuple[int, int]:
        """Returns the first transition that is a decision, and the number of decisions: the same on all processes and
        in every round of resampling.
        """
        window, num_steps = self.config.window, self._schedule.num_steps
        if window is None:
            return 0, num_steps - 1
        uniform = torch.rand((), generator=self._streams.generator("window", step), dtype=torch.float64).item()
        return window.start(step, num_steps, uniform), window.size

    def _noise(self, streams: Streams, step: int, keys: Sequence[tuple[str, int]], num: int) -> tuple[Tensor, Tensor]:
        """Draws for each member, a prompt's key and a place in its group, the start of its path and the noise of `num`
        decisions.
        """
        device = self.denoiser.device
        noise = torch.stack([noise_of(self.denoiser, streams, num + 1, "path", step, *key) for key in keys]).to(device)
        if self.config.initial_noise != "group":
            return noise[:, 0], noise[:, 1:]
        shared = [noise_of(self.denoiser, streams, 1, "group", step, prompt)[0] for prompt, _ in keys]
        return torch.stack(shared).to(device), noise[:, 1:]

    def _with_transitions(self, samples: Samples, drawn: Drawn, requires: frozenset[str]) -> Samples:
        """Adds the transitions that were drawn with noise to samples, as their decisions."""
        log_prob = drawn.fields["log_prob"]
        unmoved = {name: torch.zeros_like(log_prob) for name in requires & {"mean_shift", "old_divergence"}}
        return replace(
            samples,
            mask=torch.ones_like(log_prob, dtype=torch.bool),
            old_log_prob=log_prob,
            recorded=replace(Scored.from_tensors(drawn.fields), **unmoved),
            step_size=drawn.step_size.repeat_interleave(self._decisions).expand(log_prob.shape).contiguous(),
            payload={**samples.payload, "visited": drawn.visited},
        )

    def check_matching(self, matching: CopyMatching) -> None:
        """Refuses groups whose members would all be the same image, and rewards of transitions.

        Raises:
            ConfigError: members share their initial noise, and no other is drawn; or transitions are rewarded.
        """
        if self.config.stepwise:
            raise ConfigError(
                f"matching.kind = {matching.kind!r} learns from noised copies, and domain.stepwise = true rewards"
                " transitions; write domain.stepwise = false, or matching.kind = 'none'"
            )
        if matching.deterministic and self.config.initial_noise == "group":
            raise ConfigError(
                'domain.initial_noise = "group": members that are drawn without noise from one start are one image;'
                ' write domain.initial_noise = "member", or matching.deterministic = false'
            )

    def noised(self, samples: Samples, matching: CopyMatching, *, streams: Streams, step: int) -> Samples:
        """Noises every image `matching.times.num` times; the noise is keyed by `("matching", step, prompt key,
        member)`.

        The predictions under the weights that sampled are stored, with their graph where the first update can use it.
        """
        drawn = copies.noise_of(samples, matching, self.denoiser, self._schedule, streams, step)
        shape = drawn["copy_time"].shape
        payload = {name: value for name, value in samples.payload.items() if name not in ("visited", "mean")} | drawn
        mask = torch.ones(shape, dtype=torch.bool, device=samples.mask.device)
        noised = samples.with_decisions(mask, mask.double(), payload)
        pairs, conditions = scorer.pairs_of(mask, 1), self._encoded.of(samples.prompts)
        if self._keeps_graph(len(pairs)):
            predicted = copies.predictions(self.denoiser, noised, conditions, pairs)
            prediction = predicted.new_zeros(drawn["copy_noise"].shape).index_put(pairs.unbind(1), predicted)
            constants = torch.zeros(shape[1], device=mask.device, dtype=prediction.dtype)
            self._sampler_graph = SamplerGraph(prediction, constants, constants, versions(self.module))
            fields = copies.copy_fields(predicted.detach(), self.denoiser, payload, pairs, frozenset())
            recorded = Scored.from_tensors(scorer.scatter([fields], pairs, mask, 1))
            prediction = prediction.detach()
            call = torch.full_like(payload["row"], self._sampler_graph.call)
        else:
            prediction, call = torch.zeros_like(drawn["copy_noise"]), payload["call"]

            def compute(pairs: Tensor) -> dict[str, Tensor]:
                predicted = copies.predictions(self._scorer.denoiser, noised, conditions, pairs)
                prediction[pairs.unbind(1)] = predicted
                return copies.copy_fields(predicted, self.denoiser, payload, pairs, frozenset())

            with torch.no_grad():
                recorded = Scored.from_tensors(self._scorer.rescored(self.pass_sizes, compute, mask, 1))
        payload |= {"old_prediction": prediction, "call": call}
        return replace(noised, old_log_prob=recorded.log_prob, recorded=recorded, payload=payload)

    @torch.no_grad()
    def with_reference(self, samples: Samples) -> Samples:
        """Adds the means of all decisions under the active weights to the samples, for the exact divergence.

        They also give the sampler's own divergence, so that the first update after sampling needs no forward pass for
        it.
        """
        payload, matches = samples.payload, "matching" in samples.payload
        conditions = self._encoded.of(samples.prompts)
        reference = torch.zeros_like(payload["old_prediction"] if matches else payload["visited"][:, 1:])

        def compute(pairs: Tensor) -> dict[str, Tensor]:
            place = pairs.unbind(1)
            if matches:
                reference[place] = copies.predictions(self._scorer.denoiser, samples, conditions, pairs)
                gap = payload["old_prediction"][place] - reference[place]
                return {"exact_divergence": gap.square().flatten(1).mean(1)}
            gaussians, _ = self._transitions(samples, pairs)
            reference[place] = gaussians.mean
            # The live policy's Gaussian is of the same spread, around its own mean.
            live = replace(gaussians, mean=payload["mean"][place])
            return {"exact_divergence": live.divergence(gaussians.mean, self.config.reduce)}

        elements = 1 if matches else self._decisions
        fields = self._scorer.rescored(self.pass_sizes, compute, samples.mask, elements)
        recorded = samples.recorded
        if recorded is not None:
            recorded = replace(recorded, exact_divergence=fields["exact_divergence"])
        name = "reference_prediction" if matches else "reference_mean"
        return replace(samples, recorded=recorded, payload={**payload, name: reference})

    @property
    def rewards_decisions(self) -> str:
        """The key that makes every reward a map over transitions; empty where it is not set."""
        return "domain.stepwise = true" if self.config.stepwise else ""

    def reward(self, samples: Samples) -> RewardTable:
        """Computes every reward of every member; with `stepwise` of every transition, as its gain."""
        if self.config.stepwise:
            predicted = stepwise.predicted_latents(samples.payload, self._schedule, self.config.sampler)
            num_members, num_decisions = predicted.shape[:2]
            pictures = self._decode(predicted.flatten(0, 1)).unflatten(0, (num_members, num_decisions))
            images = torch.cat([pictures, samples.payload["images"][:, None]], 1)
            group = samples.group.repeat_interleave(num_decisions + 1).tolist()
            table = self._judge(samples.prompts, group, images.flatten(0, 1), judges=False)
            return stepwise.gains(table, num_decisions + 1)
        return self._judge(samples.prompts, samples.group.tolist(), samples.payload["images"], judges=False)

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        """Scores members `rows`: fields `[B, T]`; `auxiliary["supervised"]` for demonstrations."""
        rows = rows.clamp(min=0)
        if "clean" in samples.payload:
            conditions = self._encoded.of(samples.prompts)

            def loss_of(members: Tensor) -> dict[str, Tensor]:
                return {"loss": supervised_loss(self._scorer.denoiser, samples.select(members), conditions)}

            loss = joined_rows(self._scorer.apply(self.pass_sizes, loss_of, rows), len(rows))["loss"]
            return Scored(torch.zeros_like(samples.old_log_prob[rows]), auxiliary={"supervised": loss})
        compute, elements = self._computation(samples, rows, requires)
        fields = self._scorer.rescored(self.pass_sizes, compute, samples.mask[rows], elements)
        return Scored.from_tensors(fields)

    def backward(self, samples: Samples, rows: Tensor, cotangents: Scored) -> Scored:
        """Accumulates `.grad`, slice by slice."""
        if "clean" in samples.payload:
            return super().backward(samples, rows, cotangents)
        rows = rows.clamp(min=0)
        field_cotangents = {
            name: value for name, value in cotangents.tensors().items() if not name.startswith("auxiliary.")
        }
        requires = frozenset(field_cotangents) | {"log_prob"}
        # A graph serves one backward pass and is let go before it, so that its memory is free in any case.
        graph, self._sampler_graph = self._sampler_graph, None
        if graph is not None and not graph.serves(self.module, samples.payload["call"][rows]):
            graph = None
        compute, elements = self._computation(samples, rows, requires, graph)
        mask, whole = samples.mask[rows], graph is not None
        fields = self._scorer.backward(self.pass_sizes, compute, mask, elements, field_cotangents, whole=whole)
        return Scored.from_tensors(fields)

    def demonstrations(self, size: int, *, streams: Streams, step: int) -> Samples | None:
        """Draws `size` images without replacement within the step; None where there are none to learn from."""
        config = self.config.demonstrations
        if config is not None and self._splits.pictures is not None:
            return image_demonstrations(config, self._splits.pictures, self.denoiser, size, streams, step)
        if config is None or self._corpus is None:
            return None
        places = streams.numpy("demonstrations", step).choice(
            len(self._corpus), size=min(size, len(self._corpus)), replace=False
        )
        prompts = list({prompt.key: prompt for prompt in self._splits.image_prompts}.values())
        return demonstrations(config, self._corpus, self._splits.image_prompts, places.tolist(), prompts, streams, step)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Every metric that `evaluate` may report: each reward and judge, their sum, and diversity."""
        return tuple(evaluate_module.metric_names(self.config.evaluation.sampler.kind, list(self.config.rewards)))

    @torch.no_grad()
    def evaluate_shared(self, *, streams: Streams, peers: Peers | None) -> Evaluation:
        config = self.config.evaluation
        prompts = self._splits.evaluated[: config.num_prompts]
        size = prompts_at_once(config.num_images, self._elements)
        accompany = partial(self._drawn_images, self._evaluated(prompts[:1])) if self._scorer.sharded else None
        judged = judged_in_chunks(prompts, size, self._judged, peers, accompany)
        evaluation = evaluate_module.evaluation(config, prompts, judged)
        if self._splits.pictures is None or not config.num_columns:
            return evaluation
        drawn = self._evaluated(prompts[: config.num_rows])
        return replace(evaluation, pictures={"images": restored_picture(drawn, judged, config.num_images)})

    def _judged(self, placed: Sequence[tuple[int, Prompt]]) -> JudgedImages:
        """Draws and judges the images of some prompts, each with its place among all."""
        prompts, config = self._evaluated([prompt for _, prompt in placed]), self.config.evaluation
        images = self._drawn_images(prompts)
        group = [index for index in range(len(prompts)) for _ in range(config.num_images)]
        table = self._judge(prompts, group, images, judges=True)
        return evaluate_module.judged_images(config, placed[0][0], images, table)

    @torch.no_grad()
    def _drawn_images(self, prompts: Sequence[Prompt]) -> Tensor:
        """Draws the images of some prompts, a pass at a time; an image's noise is its own."""
        self.fit_passes(prompts[:1])
        conditions = self._encoded.of(prompts)
        return evaluated_images(self.config, self._scorer, prompts, conditions, self.pass_sizes, self._decode)

    def _evaluated(self, prompts: Sequence[Prompt]) -> Sequence[Prompt]:
        """Returns prompts as every evaluation shows them: where they are images, degraded alike."""
        return self._splits.shown(prompts, Streams(self.config.evaluation.seed), 0)

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        """Describes members for people: prompt, image and settings."""
        described = []
        for row, group in zip(rows.tolist(), samples.group[rows].tolist(), strict=True):
            prompt = samples.prompts[group]
            image = as_strips(samples.payload["images"][row : row + 1])[0]
            record = {"prompt": prompt.columns["prompt"], "key": prompt.key, "image": image}
            if self._splits.pictures is not None:
                record |= self._splits.pictures.described(prompt)
            described.append(record | {"settings": dict(samples.settings)})
        return described

    def save(self, folder: Path) -> None:
        """Writes the model in diffusers' folder format."""
        self.denoiser.save(folder)

    def _keeps_graph(self, num_rows: int) -> bool:
        """Returns whether the sampler's graph over that many rows is stored for the first update; sharded weights
        sample without one.
        """
        return not self._scorer.sharded and should_keep_graph(self.module, num_rows, self.pass_sizes)

    def _check(self) -> None:
        """Refuses a sampler, prompts, video rewards or guidance that the model cannot serve."""
        config, splits = self.config, self._splits
        if config.sampler.flow_only and self._schedule.kind != "flow":
            raise ConfigError(
                f"sampler.kind = {config.sampler.kind!r} is for flow matching, and this model's scheduler is not; write"
                " auto, ddim or cps"
            )
        if splits.pictures is None:
            self.denoiser.check(
                [prompt.columns for prompt in (*splits.train, *splits.evaluated, *splits.image_prompts)]
            )
        else:
            splits.pictures.check(self.denoiser, config.model)
        if config.video_rewards == "whole" and not self.denoiser.video:
            raise ConfigError("video_rewards = 'whole': this model makes images, not videos; leave video_rewards out")
        if self._guided and splits.train and not self.denoiser.distilled:
            shown = splits.shown(splits.train[:1], Streams(0), 0)
            if self._encoded.entry(shown[0]).unconditional is None:
                raise ConfigError(
                    f"guidance = {config.guidance}: this model has no unconditional branch to be guided away from;"
                    " write guidance = 1"
                )

    @property
    def _decisions(self) -> int:
        """The number of decisions in a transition."""
        return self._elements if self.config.reduce == "per_element" else 1

    @cached_property
    def _corpus(self) -> Tensor | None:
        if self._splits.images is None:
            return None
        images, encode = torch.from_numpy(self._splits.images), self.denoiser.to_latents
        self.pass_sizes.measure(
            ENCODING,
            lambda num: encode(images[:1].expand(num, -1, -1, -1)),
            self.denoiser.device,
            pass_budget(self.denoiser.device),
        )
        latents = joined(self.pass_sizes.each(ENCODING, encode, images), len(images))
        if tuple(latents.shape[1:]) != self.denoiser.latent_shape:
            raise ConfigError(
                f"model: it draws latents of shape {self.denoiser.latent_shape}, and the images to learn from are"
                f" {tuple(latents.shape[1:])}"
            )
        return latents

    def _with_source_columns(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        return [self._splits.with_columns(prompt, self.denoiser) for prompt in prompts]

    def _transitions(self, samples: Samples, pairs: Tensor) -> tuple[Any, Tensor]:
        denoiser, conditions = self._scorer.denoiser, self._encoded.of(samples.prompts)
        return scorer.transitions(
            denoiser, self._schedule, self.config.sampler, samples.payload, conditions, samples.group, pairs
        )

    def _computation(
        self, samples: Samples, rows: Tensor, requires: frozenset[str], graph: SamplerGraph | None = None
    ) -> tuple[Callable[[Tensor], dict[str, Tensor]], int]:
        """Returns the function from pairs (place in `rows`, decision) to their fields, and the number of decisions of a
        pair.

        Args:
            rows: members.
            graph: the stored graph of these members, which spares a forward pass.
        """
        payload, conditions = samples.payload, self._encoded.of(samples.prompts)
        matches = "matching" in payload

        def fields(pairs: Tensor) -> dict[str, Tensor]:
            member, decision = rows[pairs[:, 0]], pairs[:, 1]
            pairs = torch.stack([member, decision], 1)
            if matches:
                if graph is None:
                    prediction = copies.predictions(self._scorer.denoiser, samples, conditions, pairs)
                else:
                    prediction = graph.mean[payload["row"][member], decision]
                return copies.copy_fields(prediction, self.denoiser, payload, pairs, requires)
            if graph is None:
                gaussians, after = self._transitions(samples, pairs)
            else:
                gaussians, after = graph.at(payload["row"][member], decision), payload["visited"][member, decision + 1]
            return scorer.scored_fields(gaussians, after, payload, pairs, self.config.reduce, requires)

        return fields, 1 if matches else self._decisions

    def fit_passes(self, prompts: Sequence[Prompt] = (), reserved_bytes: float = 0.0) -> None:
        """Measures the rows of every kind of pass that is neither stated nor known.

        Args:
            prompts: one that is measured with; unset takes the first of the training prompts.
            reserved_bytes: bytes that will be allocated later, such as an optimiser's moments.

        Raises:
            ConfigError: weights are sharded, and memory ran out.
        """
        prompts = prompts or self._splits.train[:1] or self._splits.evaluated[:1]
        if not prompts or all(self.pass_sizes.knows(kind) for kind in (SAMPLING, UPDATE, DECODING)):
            return
        self._scorer.measure(
            self.pass_sizes,
            self._encoded.of(self._splits.shown(self._with_source_columns(prompts[:1]), self._streams, 0)),
            self._schedule,
            self._rows_of_model,
            reserved_bytes,
            self.memory_remedy,
        )

    def _opened_pass_sizes(self, parent: DiffusionDomain | None) -> PassSizes:
        """Returns the parent's sizes where passes are the same, else unknown ones."""
        at_once = self.config.transitions_at_once
        stated = {} if at_once is None else {SAMPLING: at_once, UPDATE: at_once}
        if parent is not None and (parent.pass_sizes.stated, parent._rows_of_model) == (stated, self._rows_of_model):
            return parent.pass_sizes
        return PassSizes(stated, _REMEDY)

    def _decode(self, latents: Tensor) -> Tensor:
        pictures = self.pass_sizes.each(DECODING, lambda part: as_pictures(self.denoiser.decode(part)), latents)
        return joined(pictures, len(latents))

    def _judge(self, prompts: Sequence[Prompt], group: Sequence[int], images: Tensor, judges: bool) -> RewardTable:
        frames = self.denoiser.video and self.config.video_rewards == "frames"
        return judge(self.rewards, prompts, group, images, judges=judges, frames=frames)
