"""Every preset inside every other trainer: how far its loss and gradient there are from the objective's own.

    make conformance                                        # all of them, in an environment of their own
    PYTHONPATH=src:. python benchmarks/conformance.py verl  # or trl, skyrl: in an environment that has it

Each runs the system's own functions on a shared case and compares with `Objective.loss` on the whole batch. verl: its
advantage registry, then its `ppo_loss` on two processes of two micro-batches, with its KL term and its counts of the
step. SkyRL: its registries, its scaling of advantages over the step, then four micro-batches. TRL: its trainer on a
small model, the gradient of all weights at an optimiser step off-policy, two micro-batches. A pair that is refused
says why. The lines of a system are replaced in `results/conformance.json`, from which the documentation makes its
page.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise.records import Rollouts, Scored

RESULTS = Path(__file__).resolve().parent / "results" / "conformance.json"
GROUPS = ["a", "a", "a", "b", "b", "b", "c", "c", "c", "d", "d", "d"]
LENGTHS = [5, 1, 3, 4, 5, 2, 1, 1, 5, 3, 4, 2]
REWARDS = [1.0, 0.0, 0.5, 0.0, 1.0, 0.25, 1.0, 0.75, 0.0, 0.5, 0.5, 0.0]
"""Members of four prompts, of uneven lengths; no group is flat, which the systems filter each in their own way."""
TOOLS = {0: [2], 4: [1, 2], 10: [3], 5: [0, 1]}
"""Member -> tokens that a tool wrote: in the middle, at the end, where the reward lies, and everywhere."""
MICRO_BATCHES = [[4, 1, 0], [2, 5, 3], [11, 6, 7], [8, 9, 10]]

Difference = dict[str, float]


class NotRun(Exception):
    """A pair that is not refused, and that this machine cannot run through the system's own code."""


def case() -> dict[str, Tensor]:
    """The log-probs of the shared case in fp64, ratios on both sides of every clip."""
    generator = torch.Generator().manual_seed(11)

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(12, 5, generator=generator, dtype=torch.float64)

    old = draw(-3.0, -0.8)
    mask = attended()
    for member, tokens in TOOLS.items():
        mask[member, tokens] = False
    return {
        "mask": mask,
        "old": old,
        "live": old + draw(-0.7, 0.7),
        "reference": old + draw(-0.6, 0.6),
        "entropy": draw(0.1, 2.0),
    }


def attended() -> Tensor:
    """Returns where an answer has a token, a tool's among them."""
    return torch.arange(5) < torch.tensor(LENGTHS)[:, None]


def expected(objective: Objective, tensors: Mapping[str, Tensor]) -> tuple[float, Tensor]:
    """Computes the loss of the whole batch and its gradient by the log-probs, by the objective alone."""
    live = tensors["live"].clone().requires_grad_()
    places = {prompt: place for place, prompt in enumerate(dict.fromkeys(GROUPS))}
    rollouts = Rollouts(
        group=torch.tensor([places[prompt] for prompt in GROUPS]),
        mask=tensors["mask"],
        old_log_prob=tensors["old"],
        rewards={"reward": torch.tensor(REWARDS, dtype=torch.float64)},
        reference_log_prob=tensors["reference"] if objective.needs_reference else None,
    )
    plan = objective.plan(objective.prepare(rollouts, objective.init()))
    loss = objective.loss(Scored(live, entropy=tensors["entropy"]), plan).total
    return float(loss.detach()), torch.autograd.grad(loss, live)[0]


def difference(actual: tuple[float, Tensor], wanted: tuple[float, Tensor]) -> Difference:
    """Computes the largest differences, relative to the size of the loss's terms and to the gradient's norm."""
    scale = max(abs(wanted[0]), 1e-3)
    return {
        "value": abs(actual[0] - wanted[0]) / scale,
        "gradient": float((actual[1] - wanted[1]).norm() / wanted[1].norm()),
    }


def token_rewards(mask: Tensor) -> Tensor:
    """Lays the reward of each answer on its last token."""
    last = torch.tensor(LENGTHS)[:, None] - 1
    return torch.zeros(mask.shape, dtype=torch.float64).scatter(1, last, torch.tensor(REWARDS).double()[:, None])


def verl(name: str) -> Difference:
    """Runs a preset through verl's estimator registry and its `ppo_loss`, on two processes of two micro-batches."""
    import numpy
    from tensordict import TensorDict
    from verl.trainer.config import AlgoConfig, FilterGroupsConfig, KLControlConfig
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, kl_penalty
    from verl.workers.config import ActorConfig, PolicyLossConfig
    from verl.workers.utils.losses import ppo_loss

    from groupwise_trainers.verl import register
    from groupwise_trainers.verl.register import keys

    objective, tensors = Objective.preset(name), case()
    lines = register(objective, name=f"conformance_{name}")
    registered = lines[0].partition("=")[2]
    prefix = "actor_rollout_ref.actor."
    actor_keys = {key.removeprefix(prefix): value for key, value in keys(objective).items() if key.startswith(prefix)}
    scale_factor = actor_keys.pop("loss_scale_factor", None)
    mask = tensors["mask"].double()
    rewards, algorithm = token_rewards(mask), {}
    if objective.divergence.kind != "none" and objective.divergence.place == "reward":
        beta = objective.divergence.beta.at(0)
        algorithm = {"use_kl_in_reward": True, "kl_penalty": "kl", "kl_ctrl": KLControlConfig(kl_coef=beta)}
        rewards = rewards - beta * kl_penalty(tensors["old"], tensors["reference"], "kl") * mask
    if objective.admission.resamples:
        algorithm["filter_groups"] = FilterGroupsConfig(enable=True)
    advantage, _ = get_adv_estimator_fn(registered)(
        token_level_rewards=rewards,
        response_mask=mask,
        index=numpy.array(GROUPS, dtype=object),
        config=AlgoConfig(adv_estimator=registered, **algorithm),
    )
    live = tensors["live"].clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for micro_batch in MICRO_BATCHES:
        config = ActorConfig(
            strategy="fsdp",
            rollout_n=1,
            ppo_micro_batch_size_per_gpu=1,
            policy_loss=PolicyLossConfig(loss_mode=registered),
            loss_scale_factor=scale_factor,
            **actor_keys,
        )
        rows = torch.tensor(micro_batch)
        attention = torch.cat([torch.ones(len(rows), 1), attended()[rows]], 1).long()
        data = TensorDict(
            {
                "prompts": torch.ones(len(rows), 1),
                "responses": torch.ones(len(rows), 5),
                "attention_mask": attention,
                "response_mask": mask[rows],
                "old_log_probs": tensors["old"][rows],
                "ref_log_prob": tensors["reference"][rows],
                "advantages": advantage[rows],
            },
            batch_size=[len(rows)],
        )
        counts = {"dp_size": 2, "batch_num_tokens": int(mask.sum()), "global_batch_size": 12}
        for key, count in counts.items():
            data.set_non_tensor(key, count)
        padding = torch.zeros(len(rows), 1, dtype=torch.float64)

        def packed(values: Tensor, padding: Tensor = padding, attention: Tensor = attention) -> Tensor:
            return torch.cat([values, padding], 1)[attention.bool()]

        outputs = {"log_probs": packed(live[rows]), "entropy": packed(tensors["entropy"][rows])}
        loss, _ = ppo_loss(config, outputs, data)
        # Processes average their gradients.
        total = total + loss / 2
    actual = float(total.detach()), torch.autograd.grad(total, live)[0]
    return difference(actual, expected(objective, tensors))


def skyrl(name: str) -> Difference:
    """Runs a preset through SkyRL's registries, its scaling of advantages and four micro-batches."""
    from skyrl.backends.skyrl_train.utils import ppo_utils
    from skyrl.train.config import AlgorithmConfig
    from skyrl.train.config.config import DynamicSamplingConfig

    from groupwise_trainers.skyrl import PREFIX, keys, register

    objective, tensors = Objective.preset(name), case()
    registered = register(objective, name=f"conformance_{name}")[0].partition("=")[2]
    flat = {key.removeprefix(PREFIX): value for key, value in keys(objective).items()}
    settings = {key: value for key, value in flat.items() if "." not in key}
    if "dynamic_sampling.type" in flat:
        settings["dynamic_sampling"] = DynamicSamplingConfig(type="filter")
    config = AlgorithmConfig(policy_loss_type=registered, advantage_estimator=registered, **settings)
    mask = tensors["mask"].double()
    advantage, _ = ppo_utils.compute_advantages_and_returns(
        token_level_rewards=token_rewards(mask),
        response_mask=mask,
        index=GROUPS,
        adv_estimator=registered,
        config=config,
    )
    scaled = ppo_utils.apply_loss_reduction_to_advantages_minibatch(
        advantages=advantage,
        loss_mask=mask,
        loss_reduction=config.loss_reduction,
        micro_batch_size=3,
        max_seq_len=config.max_seq_len,
    )
    live = tensors["live"].clone().requires_grad_()
    loss = ppo_utils.PolicyLossRegistry.get(registered)
    total = torch.zeros((), dtype=torch.float64)
    for micro_batch in MICRO_BATCHES:
        rows = torch.tensor(micro_batch)
        value, _ = loss(live[rows], tensors["old"][rows], scaled[rows], config=config, loss_mask=mask[rows])
        if config.use_kl_loss:
            estimate = ppo_utils.compute_approx_kl(
                live[rows], tensors["reference"][rows], mask[rows], config.kl_estimator_type
            )
            # As SkyRL's worker weighs it: the mean of each answer, averaged over answers and micro-batches.
            kl = ppo_utils.masked_mean(estimate, mask[rows], dim=-1).mean()
            value = value + kl * config.kl_loss_coef / len(MICRO_BATCHES)
        if config.use_entropy_loss:
            raise NotRun("the entropy bonus is computed in SkyRL's worker, which needs a GPU")
        total = total + value
    actual = float(total.detach()), torch.autograd.grad(total, live)[0]
    return difference(actual, expected(objective, tensors))


def trl(name: str) -> Difference:
    """Runs a preset in TRL's trainer on a small model for two optimiser steps, the second off-policy, and compares the
    gradient of all its weights.
    """
    from tests.integrations.trl import tiny
    from transformers import TrainerCallback

    from groupwise_trainers.trl import GRPOTrainer

    # TRL draws a fixed number of prompts.
    objective = Objective.preset(name)
    if objective.admission.resamples:
        objective = Objective.preset(name, **{"admission.kind": "informative"})
    generations: list[dict[str, Any]] = []
    weights: list[dict[str, Tensor]] = []
    gradients: list[Tensor] = []

    class Watched(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            output = super()._generate_and_score_completions(inputs)
            generations.append({**output, "rewards": self._rewards})
            return output

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **settings: Any) -> None:
            model = settings["model"]
            weights.append({key: value.clone() for key, value in model.state_dict().items()})
            gradients.append(_flat([parameter.grad for parameter in model.parameters()], model))

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys = {"num_iterations": 2, "max_steps": 2, "optim": "sgd", "learning_rate": 0.2}
        trainer = Watched(
            tiny.model(Path(folder) / "model"),
            tiny.early_letters,
            tiny.settings(Path(folder) / "out", **keys),
            train_dataset=tiny.data(),
            processing_class=tiny.tokenizer(),
            callbacks=[Watch()],
            objective=objective,
        )
        trainer.train()
        losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
        model: Any = tiny.model(Path(folder) / "model")
        model.load_state_dict(weights[1])
    value, gradient = _local_step(objective, model, generations[0])
    scale = max(abs(value), 1e-3)
    return {
        "value": abs(losses[1] - value) / scale,
        "gradient": float((gradients[1] - gradient).norm() / gradient.norm()),
    }


def _flat(gradients: list[Tensor | None], model: Any) -> Tensor:
    parameters = zip(gradients, model.parameters(), strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in parameters]).clone()


def _local_step(objective: Objective, model: Any, generation: Mapping[str, Any]) -> tuple[float, Tensor]:
    """Computes the loss of one generation and its gradient, by a plain forward pass and the objective."""
    mask = generation["completion_mask"].bool()
    ids = torch.cat([generation["prompt_ids"], generation["completion_ids"]], 1)
    attention = torch.cat([generation["prompt_mask"], generation["completion_mask"]], 1)
    logits = model(input_ids=ids, attention_mask=attention).logits[:, -mask.shape[1] - 1 : -1]
    all_log_probs = logits.log_softmax(-1)
    log_prob = all_log_probs.gather(2, generation["completion_ids"][:, :, None])[:, :, 0]
    probabilities = all_log_probs.exp()
    entropy = -(probabilities * all_log_probs).sum(-1)
    score_norm = (1 - 2 * log_prob.detach().exp() + probabilities.detach().square().sum(-1)).clamp(min=0).sqrt()
    rollouts = Rollouts(
        group=torch.arange(len(mask)) // 4,
        mask=mask,
        old_log_prob=generation["old_per_token_logps"],
        rewards={"early_letters": generation["rewards"][:, 0]},
        reference_log_prob=generation.get("ref_per_token_logps"),
    )
    state = objective.init().model_copy(update={"step": 1})
    plan = objective.plan(objective.prepare(rollouts, state))
    loss = objective.loss(Scored(log_prob, entropy=entropy, score_norm=score_norm), plan).total
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return float(loss.detach()), _flat(list(gradients), model)


SYSTEMS: dict[str, tuple[Callable[[str], Difference], str]] = {
    "trl": (trl, "trl"),
    "verl": (verl, "verl"),
    "skyrl": (skyrl, "skyrl"),
}


def main() -> int:
    """Measures the presets in one system and writes its lines; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=SYSTEMS)
    arguments = parser.parse_args()
    run, package = SYSTEMS[arguments.system]
    warnings.simplefilter("ignore")
    if arguments.system == "skyrl":
        import typing

        import typing_extensions

        # On Python 3.11 SkyRL's own records need the newer TypedDict.
        typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]
    if arguments.system != "trl":
        torch.set_default_dtype(torch.float64)
    table = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    rows: dict[str, Any] = {}
    for name in method_names():
        try:
            rows[name] = {key: float(f"{value:.1e}") for key, value in run(name).items()}
        except ValueError as error:
            rows[name] = {"refused": str(error)}
        except NotRun as error:
            rows[name] = {"not_run": str(error)}
        print(f"{name}: {rows[name]}", flush=True)
    table[arguments.system] = {
        "version": version(package),
        "torch": torch.__version__,
        "command": "make conformance",
        "presets": rows,
    }
    RESULTS.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
