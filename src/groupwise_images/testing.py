"""The laws of a pipeline's adapter: functions of the opened pipeline, and comparisons with the pipeline itself."""

import copy
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from groupwise.config import ConfigError, holding, object_path, validate
from groupwise.testing.slot import BrokenLaws
from groupwise_images.diffusion.denoiser import Condition
from groupwise_images.diffusion.model import LoraConfig, Pretrained
from groupwise_images.diffusion.models.files import quiet
from groupwise_images.diffusion.models.open import without_dropout
from groupwise_images.diffusion.models.pipeline import PipelineDenoiser, open_pipeline
from groupwise_images.diffusion.pipeline_adapter import (
    GUIDE,
    INSTRUCTION,
    NAME,
    PipelineAdapter,
    PromptImage,
    without_images,
)
from groupwise_images.diffusion.sampler import ODE, Step
from groupwise_images.diffusion.transition import (
    Schedule,
    flow_schedule,
    is_flow,
    read_parametrisation,
    read_schedule,
    transition,
    with_stated_levels,
)

# The prompts that a pipeline's adapter is tested with: texts, or texts with images made here.

IMAGE = "degraded"
"""The column of a prompt's image."""

Rows = list[dict[str, Any]]


def rows_of(prompts: Sequence[str | Mapping[str, Any]], takes_image: bool) -> Rows:
    """Returns prompts as columns; where prompts are images, a text is the instruction that comes with one.

    Example:
        >>> rows_of(["a cat"], False), rows_of(["a cat"], True)
        ([{'prompt': 'a cat'}], [{'instruction': 'a cat', 'prompt': 'image 0'}])
    """
    column = INSTRUCTION if takes_image else "prompt"
    rows = [{column: row} if isinstance(row, str) else dict(row) for row in prompts]
    return [{**row, "prompt": f"image {place}"} if takes_image else row for place, row in enumerate(rows)]


def with_images(rows: Rows, shape: Sequence[int]) -> Rows:
    """Gives each prompt that has none an image of random pixels, such as a file may hold.

    Args:
        rows: the prompts.
        shape: the shape of an image, `[C, H, W]`.
    """
    generator = torch.Generator().manual_seed(2)
    pixels = [torch.randint(0, 256, tuple(shape), generator=generator).float() / 255 for _ in rows]
    return [{IMAGE: PromptImage(image.numpy()), **row} for image, row in zip(pixels, rows, strict=True)]


def exchanged(rows: Rows, image: bool) -> Rows:
    """Exchanges the images of two prompts, or everything else.

    Args:
        rows: two prompts.
        image: whether images are exchanged.
    """
    first, second = ({name: value for name, value in row.items() if (name == IMAGE) == image} for row in rows)
    return [{**rows[0], **second}, {**rows[1], **first}]


def reads_words(adapter: PipelineAdapter, pipe: Any, row: Mapping[str, Any]) -> bool:
    """Tests whether an adapter that takes an image refuses a prompt without an instruction."""
    try:
        adapter.check(pipe, [{"prompt": row["prompt"], IMAGE: row[IMAGE]}])
    except ConfigError:
        return True
    return False


_ADAPTER = "adapter"
"""The name by which a configuration refers to the class under test."""

_CPU = torch.device("cpu")

_IMAGE_GUIDANCE = 1.5
"""The image guidance that is tested in addition to 1, which means none."""


@final
@dataclass(frozen=True)
class _Trial:
    """An opened pipeline, two prompts, and one initial latent for each of them."""

    model: Pretrained
    prompts: Rows
    tolerance: float
    num_steps: int
    guidance: float
    denoiser: PipelineDenoiser
    noise: Tensor

    @property
    def adapter(self) -> PipelineAdapter:
        return self.denoiser.adapter

    @property
    def takes_image(self) -> bool:
        return self.adapter.takes_image

    def opened(self, **changes: Any) -> PipelineDenoiser:
        """Opens the folder once more, with other keys of the model."""
        return _open(self.model.model_copy(update=changes))

    def encode(self, prompts: Sequence[Mapping[str, Any]] | None = None) -> Condition:
        """Encodes prompts, the trial's own unless others are passed."""
        return self.denoiser.encode(self.prompts if prompts is None else prompts)

    def predict(self, latents: Tensor, condition: Condition, guidance: float = 1.0, place: int = 1) -> Tensor:
        """Predicts without gradient at the start of transition `place`."""
        timestep = self.denoiser.schedule(self.num_steps).timestep[place].float().expand(len(latents))
        with torch.no_grad():
            return self.denoiser.predict(latents, timestep, condition, guidance)

    def differ(self, left: Tensor, right: Tensor) -> bool:
        """Returns whether two tensors are further apart than the tolerance, relative to the larger values."""
        return _distance(left, right) > self.tolerance * max(1.0, float(right.abs().max()))

    @property
    def guidances(self) -> list[float]:
        """Strengths of guidance that the model can be run with."""
        can_be_guided = self.denoiser.distilled or self.encode().unconditional is not None
        return [1.0, self.guidance] if can_be_guided else [1.0]

    def with_negatives(self) -> Rows | None:
        """Returns the prompts with negative ones; None where the model takes none."""
        rows = [row | {"negative_prompt": text} for row, text in zip(self.prompts, ("grey", "blue"), strict=True)]
        try:
            self.denoiser.check(rows)
        except ConfigError:
            return None
        return rows


def check_pipeline(
    adapter: type[PipelineAdapter],
    folder: str | Path,
    *,
    size: tuple[int, ...] | None = None,
    prompts: Sequence[str | Mapping[str, Any]] = ("a red cat", "two dogs"),
    tolerance: float = 1e-3,
    num_steps: int = 3,
    guidance: float = 4.0,
) -> None:
    """Tests a pipeline's adapter against every law that training relies on, on a pipeline in a folder.

    Conditions have one row a prompt, which depends on that prompt alone; predictions are the same at every call, depend
    on no other row, and read latents, time, prompt, its image and guidance; the noise levels are those of the
    pipeline's own call, and the images drawn without noise are its images, with and without guidance; `unpack` and
    `pack` are inverse; decoded images are finite, in range and of the size asked for; weights have gradients, in half
    precision too; saved weights and LoRA adapters give the same images in plain diffusers.

    A small pipeline with random weights suffices, in which no layer is zero: fresh transformers of diffusers predict
    zero, whatever they are asked.

    Args:
        adapter: the class.
        folder: the folder of a pipeline that the adapter is for.
        size: the size of the images, as `domain.model.size`; unset is the pipeline's own.
        prompts: two different ones, texts or columns. An adapter that takes an image is given two that are made here,
            unless the columns hold them (`degraded`).
        tolerance: by which two computations of an image in [0, 1], a log-prob or a prediction may differ.
        num_steps: transitions from noise to an image.
        guidance: tried in addition to 1, which is without.

    Raises:
        BrokenLaws: at least one law does not hold; the message lists all of them.
        ValueError: `adapter` is not an adapter class, or there are not two prompts.

    Example:
        >>> check_pipeline(dict, "models/FLUX.1-dev")
        Traceback (most recent call last):
        ValueError: <class 'dict'> is no adapter; pass a class that extends groupwise_images.diffusion.pipeline_adapter.PipelineAdapter
    """  # noqa: E501
    if not (isinstance(adapter, type) and issubclass(adapter, PipelineAdapter)):
        raise ValueError(f"{adapter!r} is no adapter; pass a class that extends {NAME}")
    if len(prompts) != 2 or prompts[0] == prompts[1]:
        raise ValueError(f"prompts = {list(prompts)}: pass two different ones")
    rows = rows_of(prompts, adapter.takes_image)
    with holding({_ADAPTER: adapter}):
        try:
            model = validate(
                Pretrained, {"path": str(folder), "size": size, "dtype": "float32", "pipeline": object_path(_ADAPTER)}
            )
            denoiser = _open(model)
        # A user's code may fail in any way, so that the message names the call that failed.
        except Exception as error:
            raise BrokenLaws([f"open: {_reason(error)}"], adapter.__name__, GUIDE) from error
        if denoiser.condition_shape is not None:
            rows = with_images(rows, denoiser.condition_shape)
        noise = torch.randn(2, *denoiser.latent_shape, generator=torch.Generator().manual_seed(1))
        trial = _Trial(model, rows, tolerance, num_steps, guidance, denoiser, noise)
        broken: list[str] = []
        for name, law in _LAWS.items():
            try:
                broken += [f"{name}: {sentence}" for sentence in law(trial)]
            except Exception as error:
                broken.append(f"{name}: {_reason(error)}")
    if broken:
        raise BrokenLaws(broken, adapter.__name__, GUIDE)


def _open(model: Pretrained) -> PipelineDenoiser:
    with quiet():
        denoiser = open_pipeline(model, "uniform", _CPU)
    without_dropout(denoiser.module)
    # An update scores in training mode.
    denoiser.module.train()
    return denoiser


def _reason(error: Exception) -> str:
    """Returns an error's first line, with its type unless it is a message for people."""
    first_line = (str(error).splitlines() or ["no message"])[0]
    return first_line if isinstance(error, ConfigError) else f"{type(error).__name__}: {first_line}"


def _distance(left: Tensor, right: Tensor) -> float:
    return float((left - right).abs().max())


def _conditions(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of conditions: refused prompts, rows, and that a row depends on its prompt alone."""
    try:
        trial.denoiser.check([{}])
        yield "check accepts a prompt without any column; refuse with a ConfigError what encode cannot read"
    except ConfigError:
        pass
    if trial.takes_image:
        try:
            trial.denoiser.check([without_images(trial.prompts[0])])
            yield "check accepts a prompt without its image; refuse with a ConfigError what encode cannot read"
        except ConfigError:
            pass
    together = trial.encode()
    apart = [trial.encode([row]) for row in trial.prompts]
    halves: list[tuple[str, Any]] = [("", lambda condition: condition.tensors)]
    if together.unconditional is not None:
        halves.append(("negative ", lambda condition: condition.unconditional))
    for half, of in halves:
        for name, value in of(together).items():
            for row, condition in enumerate(apart):
                alone = of(condition)[name]
                if alone.shape != value[row : row + 1].shape:
                    yield (
                        f"the {half}{name!r} of a prompt is {list(alone.shape[1:])} alone and {list(value.shape[1:])}"
                        " beside another; pad to one fixed length"
                    )
                    break
                if trial.differ(alone.float(), value[row : row + 1].float()):
                    yield f"the {half}{name!r} of a prompt depends on the prompts that are encoded beside it"
                    break
    if all(torch.equal(value[0], value[1]) for value in together.tensors.values()):
        yield f"{without_images(trial.prompts[0])} and {without_images(trial.prompts[1])} have the same condition"


def _predictions(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of predictions: repeatable, row by row, and functions of all that they are given."""
    condition = trial.encode()
    prediction = trial.predict(trial.noise, condition)
    if not prediction.isfinite().all():
        yield "a prediction is not finite"
        return
    if trial.differ(trial.predict(trial.noise, condition), prediction):
        yield "the same latents gave two predictions; compute without randomness, and keep no state between calls"
        return
    last = torch.tensor([1])
    if trial.differ(trial.predict(trial.noise[1:], condition.select(last)), prediction[1:]):
        yield "a prediction depends on the rows that are computed beside it"
    swapped = torch.tensor([1, 0])
    others = {
        "the latents": trial.predict(trial.noise[swapped], condition),
        "the time": trial.predict(trial.noise, condition, place=trial.num_steps - 1),
        "the prompt": trial.predict(trial.noise, condition.select(swapped)),
    }
    if trial.takes_image:
        others["the image"] = trial.predict(trial.noise, trial.encode(exchanged(trial.prompts, image=True)))
        if reads_words(trial.adapter, trial.denoiser.pipe, trial.prompts[0]):
            others["the instruction"] = trial.predict(trial.noise, trial.encode(exchanged(trial.prompts, image=False)))
    for name, other in others.items():
        if torch.equal(other, prediction):
            yield f"{name} changes nothing in a prediction; does forward read it, and are all weights other than 0?"


def _guidance(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of guidance: it counts, and at 1 it leaves the prompted prediction as it is."""
    if len(trial.guidances) == 1:
        return
    condition = trial.encode()
    guided, prompted = (trial.predict(trial.noise, condition, guidance) for guidance in trial.guidances[::-1])
    # Equal to rounding: a guided prediction is computed in a larger batch.
    if _distance(guided, prompted) <= 1e-5 * max(1.0, float(prompted.abs().max())):
        yield f"guidance {trial.guidance:g} gives the predictions of guidance 1, which is without"
    if trial.denoiser.distilled:
        if condition.unconditional is not None:
            yield (
                "takes_guidance says that the model takes guidance as an input, and encode returns a second condition"
                " for it to be guided by; return None in its place, or do without takes_guidance"
            )
        return
    unconditional, prompted = (trial.noise[:1], trial.noise[1:])
    if trial.differ(trial.adapter.guided(unconditional, prompted, 1.0), prompted):
        yield "guided(unconditional, prompted, 1) is not the prompted prediction, with which a model is run once"


# A scheduler of diffusers of first order, with which a pipeline's own call takes the steps that are taken here.

_LEAST = 2**-12


def of_first_order(scheduler: Any) -> Any:
    """Returns a diffusers scheduler of the same noise levels whose step is the one without noise here: Euler's of a
    flow, and otherwise that of DPM-Solver of first order, which is DDIM's. DDIM's own scheduler steps by equal
    distances, also where its timesteps are at others.

    Example:
        >>> from diffusers import PNDMScheduler
        >>> scheduler = of_first_order(PNDMScheduler(skip_prk_steps=True, timestep_spacing="linspace"))
        >>> scheduler.set_timesteps(3)
        >>> scheduler.timesteps.tolist()
        [999.0, 500.0, 0.0]
    """
    if type(scheduler).__name__.startswith("FlowMatch"):
        return with_stated_levels(scheduler)
    from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler

    class FirstOrder(DPMSolverMultistepScheduler):
        def set_timesteps(  # type: ignore[override]
            self, num_inference_steps: int | None = None, device: Any = None, sigmas: Any = None, mu: Any = None
        ) -> None:
            num_steps = num_inference_steps or len(sigmas)
            super().set_timesteps(num_steps, device)
            schedule = read_schedule(
                scheduler, num_steps, spacing="scheduler" if sigmas is None else "uniform", shift=mu
            )
            self.timesteps = schedule.timestep.float().to(device)
            self.sigmas = (
                schedule.noise if schedule.kind == "flow" else schedule.noise / schedule.signal.clamp(min=_LEAST)
            ).float()

    prediction: Any = "flow_prediction" if is_flow(scheduler) else read_parametrisation(scheduler)
    made = FirstOrder(
        num_train_timesteps=scheduler.config["num_train_timesteps"],
        solver_order=1,
        prediction_type=prediction,
        use_flow_sigmas=is_flow(scheduler),
    )
    made.alphas_cumprod = scheduler.alphas_cumprod
    return made


def still(scheduler: Any) -> Any:
    """Returns a scheduler as `of_first_order` does, whose step leaves the latents as they are: a pipeline's own call
    then decodes the noise that it begins with.
    """
    from diffusers.schedulers.scheduling_utils import SchedulerOutput

    def step(model_output: Any, timestep: Any, sample: Any, return_dict: bool = True, **_: Any) -> Any:
        return SchedulerOutput(prev_sample=sample) if return_dict else (sample,)

    # A scheduler of a flow may be returned as it is.
    made = copy.deepcopy(of_first_order(scheduler))
    made.step = step
    return made


def _images(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of the noise levels and of images: both are those of the pipeline's own call."""
    with _scheduled(trial.denoiser, of_first_order) as pipe:
        schedule = None
        calls: list[tuple[float, Rows, list[str] | None]] = [
            (guidance, trial.prompts, None) for guidance in trial.guidances
        ]
        negative_rows = trial.with_negatives()
        if negative_rows is not None and len(calls) > 1:
            calls.append((trial.guidance, negative_rows, [row["negative_prompt"] for row in negative_rows]))
        for guidance, rows, negatives in calls:
            expected = _by_the_pipeline(trial, pipe, guidance, negatives)
            if schedule is None:
                schedule, sentences = _levels(trial, pipe)
                yield from sentences
            drawn = _drawn(trial.denoiser, schedule, trial.noise, rows, guidance)
            if expected.shape != drawn.shape:
                yield f"call_pipeline returned images {list(expected.shape)}, and here they are {list(drawn.shape)}"
                return
            if (distance := _distance(drawn, expected)) > trial.tolerance:
                where = f"at guidance {guidance:g}" + ("" if negatives is None else ", with negative prompts")
                if _decoding_distance(trial) > trial.tolerance:
                    see = "see the law of decode first"
                elif guidance == 1:
                    see = "see encode, and the time, the sign and the axes in forward"
                else:
                    see = "see guided, takes_guidance, and the second condition of encode"
                yield f"{where} the pipeline's own images from the same noise differ by up to {distance:.2g}; {see}"
                return
        if trial.adapter.guided_by_image and len(trial.guidances) > 1:
            denoiser = trial.opened(image_guidance=_IMAGE_GUIDANCE)
            expected = _by_the_pipeline(trial, pipe, trial.guidance, image_guidance_scale=_IMAGE_GUIDANCE)
            assert schedule is not None
            drawn = _drawn(denoiser, schedule, trial.noise, trial.prompts, trial.guidance)
            if (distance := _distance(drawn, expected)) > trial.tolerance:
                yield (
                    f"at image guidance {_IMAGE_GUIDANCE:g} the pipeline's own images from the same noise differ by up"
                    f" to {distance:.2g}; see without_image"
                )


def _levels(trial: _Trial, pipe: Any) -> tuple[Schedule, list[str]]:
    """Returns the noise levels that the pipeline's last call had, and a sentence where `shift` gives others."""
    shift = trial.adapter.shift(pipe, trial.denoiser.latent_shape)
    scheduler = pipe.scheduler
    levels = (scheduler.sigmas[:-1] if is_flow(scheduler) else scheduler.timesteps).double().cpu()
    last = None
    for spacing in ("uniform", "scheduler"):
        last = read_schedule(scheduler, trial.num_steps, spacing=spacing, shift=shift)
        here = last.noise[:-1] if is_flow(scheduler) else last.timestep
        if here.shape == levels.shape and _distance(here, levels) <= 1e-5:
            return last, []
    assert last is not None
    stated, read = ([round(float(level), 3) for level in part] for part in (levels, here))
    sentence = f"the pipeline's own call has the noise levels {stated}, and with what shift returns they are {read}"
    return (flow_schedule([*levels.tolist(), 0.0]) if is_flow(scheduler) else last), [sentence]


@contextmanager
def _scheduled(denoiser: PipelineDenoiser, change: Callable[[Any], Any]) -> Iterator[Any]:
    """Gives the pipeline, within the block, a scheduler made of its own."""
    scheduler = denoiser.pipe.scheduler
    denoiser.pipe.scheduler = change(scheduler)
    try:
        yield denoiser.pipe
    finally:
        denoiser.pipe.scheduler = scheduler


def _by_the_pipeline(
    trial: _Trial, pipe: Any, guidance: float, negatives: Sequence[str] | None = None, **arguments: Any
) -> Tensor:
    with quiet(), torch.no_grad():
        images: Any = trial.adapter.call_pipeline(
            pipe, trial.prompts, negatives, trial.noise, guidance, trial.num_steps, trial.denoiser.size, **arguments
        )
    if not isinstance(images, Tensor):
        raise ConfigError(f"call_pipeline returned a {type(images).__name__}; return the images as a tensor in [0, 1]")
    return images


def _drawn(
    denoiser: PipelineDenoiser, schedule: Schedule, noise: Tensor, rows: Sequence[Mapping[str, Any]], guidance: float
) -> Tensor:
    """Draws images without noise, from noise."""
    latents, condition = noise, denoiser.encode(rows)
    with torch.no_grad():
        for index in range(schedule.num_steps):
            timestep = schedule.timestep[index].float().expand(len(latents))
            prediction = denoiser.predict(latents, timestep, condition, guidance)
            step = Step.of(schedule, torch.full((len(latents),), index))
            latents = transition(ODE(), denoiser.parametrisation, latents, prediction, step).mean
        return denoiser.decode(latents)


def _latents(trial: _Trial) -> Iterator[str]:
    """Yields a broken law of packing: `pack` inverts `unpack`."""
    unpacked = trial.adapter.unpack(trial.denoiser.pipe, trial.noise, trial.denoiser.size)
    packed = trial.adapter.pack(unpacked)
    if packed.shape != trial.noise.shape or not torch.equal(packed, trial.noise):
        yield "pack does not invert unpack; images to learn from would be encoded as others"


def _decoded(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of decoding: finite, in range, row by row, and as the pipeline itself decodes."""
    images = trial.denoiser.decode(trial.noise)
    low, high = float(images.min()), float(images.max())
    if low < 0 or high > 1:
        yield f"decoded images lie between {low:.2g} and {high:.2g}; return them in [0, 1]"
    if trial.differ(trial.denoiser.decode(trial.noise[1:]), images[1:]):
        yield "a decoded image depends on the latents that are decoded beside it"
    elif (distance := _decoding_distance(trial)) > trial.tolerance:
        yield (
            f"the pipeline's own images of the same latents differ by up to {distance:.2g}; see unpack, decode, and the"
            " scale and shift of the autoencoder"
        )


def _decoding_distance(trial: _Trial) -> float:
    """Returns how far the images of the pipeline's own call are from those decoded here, where its scheduler leaves the
    latents as they are. Random weights may make latents so large that images drawn with them show no shift.
    """
    with _scheduled(trial.denoiser, still) as pipe:
        expected = _by_the_pipeline(trial, pipe, 1.0)
    here = trial.denoiser.decode(trial.noise)
    return math.inf if expected.shape != here.shape else _distance(here, expected)


def _gradients(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of gradients: the denoiser's weights have some, in fp32 and in bfloat16."""
    for dtype in ("float32", "bfloat16"):
        denoiser = trial.denoiser if dtype == "float32" else trial.opened(dtype=dtype)
        timestep = denoiser.schedule(trial.num_steps).timestep[1].float().expand(2)
        condition = denoiser.encode(trial.prompts)
        with torch.enable_grad():
            prediction = denoiser.predict(trial.noise, timestep, condition, trial.guidances[-1])
        if not prediction.requires_grad:
            yield f"in {dtype} a prediction has no gradient; compute it with `denoiser`, without torch.no_grad"
            return
        prediction.square().sum().backward()
        gradients = [weight.grad for weight in denoiser.module.parameters() if weight.grad is not None]
        denoiser.module.zero_grad(set_to_none=True)
        if not gradients or all(bool((gradient == 0).all()) for gradient in gradients):
            yield f"in {dtype} no weight of the component {trial.adapter.denoiser!r} has a gradient"
        elif any(not gradient.isfinite().all() for gradient in gradients):
            yield f"in {dtype} a gradient is not finite"


def _saved(trial: _Trial) -> Iterator[str]:
    """Yields a broken law of saving: diffusers draws the same images from what is saved as from the trained weights."""
    denoiser = trial.opened()
    _move(denoiser)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        denoiser.save(folder)
        yield from _same_in_diffusers(trial, denoiser, lambda: trial.adapter.load(folder), "a saved pipeline")


def _adapters(trial: _Trial) -> Iterator[str]:
    """Yields broken laws of LoRA: switched off it changes nothing, and diffusers draws equal images with its file."""
    if not hasattr(trial.denoiser.pipe, "load_lora_weights"):
        return
    # At a larger scale random weights magnify rounding until images differ by it.
    denoiser = trial.opened(lora=LoraConfig(rank=2, alpha=8))
    _move(denoiser)
    condition = trial.encode()
    with denoiser.module.disable_adapter():  # type: ignore[operator]
        timestep = denoiser.schedule(trial.num_steps).timestep[1].float().expand(2)
        with torch.no_grad():
            base = denoiser.predict(trial.noise, timestep, condition, 1.0)
    if trial.differ(base, trial.predict(trial.noise, condition)):
        yield "switched off, the LoRA changes predictions; forward must call the `denoiser` that it is given"
    with tempfile.TemporaryDirectory() as temporary:
        denoiser.save(Path(temporary))

        def loaded() -> Any:
            pipe = trial.adapter.load(Path(trial.model.path))
            pipe.load_lora_weights(temporary)
            return pipe

        yield from _same_in_diffusers(trial, denoiser, loaded, "a saved LoRA")


def _move(denoiser: PipelineDenoiser) -> None:
    """Changes every trained weight by noise."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in denoiser.module.parameters():
            if weight.requires_grad:
                weight.add_(0.1 * torch.randn(weight.shape, generator=generator))


def _same_in_diffusers(trial: _Trial, denoiser: PipelineDenoiser, load: Callable[[], Any], what: str) -> Iterator[str]:
    with quiet():
        pipe = load()
    pipe.set_progress_bar_config(disable=True)
    pipe.scheduler = of_first_order(pipe.scheduler)
    expected = _by_the_pipeline(trial, pipe, trial.guidances[-1])
    schedule, _ = _levels(trial, pipe)
    drawn = _drawn(denoiser, schedule, trial.noise, trial.prompts, trial.guidances[-1])
    if expected.shape != drawn.shape or (distance := _distance(drawn, expected)) > trial.tolerance:
        by = "" if expected.shape != drawn.shape else f" by up to {distance:.2g}"
        yield f"{what} gives other images in diffusers than here{by}; see the law of images first"


_LAWS: dict[str, Callable[[_Trial], Iterator[str]]] = {
    "encode": _conditions,
    "forward": _predictions,
    "guidance": _guidance,
    "pack": _latents,
    "decode": _decoded,
    "images": _images,
    "gradient": _gradients,
    "save": _saved,
    "lora": _adapters,
}
