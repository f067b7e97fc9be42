"""Evaluates images from held-out noise: every reward and judge, the diversity of a prompt's images, and a picture of
them.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from groupwise.domain.pass_sizes import MOST_ROWS, PassSizes, joined
from groupwise.domain.protocol import Evaluation, Prompt
from groupwise.reward import RewardTable
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig, EvaluationConfig
from groupwise_images.diffusion.image_prompts import PromptConditions
from groupwise_images.diffusion.judged_images import as_strips
from groupwise_images.diffusion.path import draw, noise_of
from groupwise_images.diffusion.scorer import Scorer
from groupwise_images.image_evaluation import JudgedImages, grid, images_at_once, records


def metric_names(mode: str, rewards: Sequence[str]) -> list[str]:
    """Lists the names that `metrics` may give, which are known without a model.

    Example:
        >>> metric_names("ode", ["seen"])
        ['ode/reward', 'ode/seen', 'ode/diversity']
    """
    return [f"{mode}/{name}" for name in ("reward", *rewards, "diversity")]


def diversity_of_prompts(images: Tensor, num_images: int) -> list[float]:
    """Computes the root mean square distance of two images of a prompt, in [0, 1]: the mean over pairs, for each
    prompt.

    Args:
        images: uint8 `[P num_images, ...]`, prompt by prompt, at least two each.
        num_images: images a prompt.

    Example:
        >>> black, white = torch.zeros(1, 2, 2, dtype=torch.uint8), torch.full((1, 2, 2), 255, dtype=torch.uint8)
        >>> diversity_of_prompts(torch.cat([black, white, black, black]), 2)
        [1.0, 0.0]
    """
    diversities = []
    for prompt_images in images.split(num_images):
        flat = (prompt_images.double() / 255).flatten(1)
        # One image against those after it: all pairs at once would hold each image many times.
        distances = [(flat[place + 1 :] - flat[place]).square().mean(-1).sqrt() for place in range(len(flat) - 1)]
        diversities.append(float(torch.cat(distances).mean()))
    return diversities


def prompts_at_once(num_images: int, elements: int) -> int:
    """Returns the number of prompts whose images are drawn and judged together before they are released; see
    `images_at_once`.

    Args:
        num_images: images a prompt.
        elements: numbers in a latent.

    Example:
        >>> prompts_at_once(8, 64), prompts_at_once(8, 4 * 64 * 64), prompts_at_once(100, 2**20)
        (128, 8, 1)
    """
    return max(1, images_at_once(elements, MOST_ROWS) // num_images)


def judged_images(config: EvaluationConfig, first: int, images: Tensor, table: RewardTable) -> JudgedImages:
    """Keeps the numbers of judged images, and the images that people see.

    Args:
        config: the configuration of the evaluation.
        first: the place of the first prompt among all.
        images: uint8 `[P num_images, H, W(, 3)]`, prompt by prompt.
        table: their rewards.
    """
    num, mode = config.num_images, config.sampler.kind
    num_shown = num * max(-(-config.num_records // num), config.num_rows if config.num_columns else 0)
    # A slice would keep all images in memory.
    shown = {place: image.clone() for place, image in enumerate(images, first * num) if place < num_shown}
    return JudgedImages(shown, table, {f"{mode}/diversity": diversity_of_prompts(images, num)} if num > 1 else {})


def evaluation(config: EvaluationConfig, prompts: Sequence[Prompt], judged: JudgedImages) -> Evaluation:
    """Returns the metrics, records and picture of the images of all prompts.

    Args:
        config: the configuration of the evaluation.
        prompts: all that were evaluated, in order.
        judged: their images.
    """
    mode, num = config.sampler.kind, config.num_images
    shown = as_strips(torch.stack(list(judged.shown.values()))) if judged.shown else torch.zeros(0)
    keys, texts = [prompt.key for prompt in prompts], [prompt.columns["prompt"] for prompt in prompts]
    pictures = {}
    if config.num_columns:
        rows = range(0, min(config.num_rows, len(prompts)) * num, num)
        images = [list(shown[row : row + min(num, config.num_columns)]) for row in rows]
        pictures["images"] = grid(images, [[(str(text), "black")] for text in texts])
    repeated, texts = [key for key in keys for _ in range(num)], [text for text in texts for _ in range(num)]
    numbers = list(range(num)) * len(prompts)
    image_records = records(mode, repeated, texts, numbers, judged.table, shown, config.num_records)
    return Evaluation(judged.metrics(mode), tuple(image_records), pictures, judged.table.events)


def evaluated_images(
    config: DiffusionConfig,
    scorer: Scorer,
    prompts: Sequence[Prompt],
    conditions: PromptConditions,
    passes: PassSizes,
    decode: Callable[[Tensor], Tensor],
) -> Tensor:
    """Draws `num_images` images of each prompt, uint8 `[P num_images, H, W(, 3)]` on the CPU; an image's noise is its
    own, the same in every evaluation.

    Args:
        config: the configuration of the domain.
        scorer: draws.
        conditions: the conditions of the prompts.
        passes: images in a pass.
        decode: makes pictures of latents.
    """
    evaluation, denoiser = config.evaluation, scorer.denoiser
    streams, schedule = Streams(evaluation.seed), denoiser.schedule(evaluation.num_steps or config.num_steps)
    num = schedule.num_steps - 1 if evaluation.sampler.stochastic else 0
    keys = [(place, number) for place in range(len(prompts)) for number in range(evaluation.num_images)]

    def images_of(rows: Tensor) -> Tensor:
        chosen = [keys[row] for row in rows.tolist()]
        noise = torch.stack(
            [noise_of(denoiser, streams, num + 1, "evaluate", prompts[place].key, number) for place, number in chosen]
        ).to(denoiser.device)
        drawn = draw(
            denoiser,
            schedule,
            evaluation.sampler,
            noise[:, 0],
            noise[:, 1:],
            conditions.select(torch.tensor([place for place, _ in chosen], device=denoiser.device)),
            guidance=config.guidance if evaluation.guidance is None else evaluation.guidance,
            first=0,
            reduce="mean",
            requires=frozenset({"log_prob"}),
        )
        return decode(drawn.latents)

    return joined(scorer.draw(passes, images_of, torch.arange(len(keys))), len(keys))
