"""Records what SkyRL 0.3's own policy losses and advantage estimators give on one small batch, in value and gradient.

    python tests/oracles/record_skyrl.py

Run in an environment that has skyrl 0.3.0 (`make oracles` makes one); writes tests/golden/skyrl_0_3.json, which the
tests read without SkyRL. The functions are those of `skyrl.backends.skyrl_train.utils.ppo_utils` as they are, in fp64,
with its own scaling of advantages and in micro-batches. It also registers objectives of ours in SkyRL's registries,
lets a worker of Ray fetch them from there, and records what that worker computes.
"""

from __future__ import annotations

import json
import sys
import typing
import warnings
from pathlib import Path
from typing import Any

import typing_extensions
from record_trl import batch, rounded
from record_verl import rewards, table

GOLDEN = Path(__file__).parents[1] / "golden" / "skyrl_0_3.json"
REDUCTIONS = ("token_mean", "sequence_mean", "seq_mean_token_sum_norm")
MICRO_BATCHES = ([0, 1, 2, 3, 4, 5], [4, 1, 0, 2, 5, 3])
"""The members of one step in two orders: one micro-batch of six, and three of two."""
LOSSES: list[dict[str, Any]] = [
    {"loss": "regular"},
    {"loss": "regular", "eps_clip_low": 0.1, "eps_clip_high": 0.28},
    {"loss": "dual_clip", "clip_ratio_c": 1.5},
    {"loss": "gspo", "eps_clip_low": 0.2, "eps_clip_high": 0.28},
    # Its own lower bound is 1 by default, which holds the weight of every falling token at 1.
    {"loss": "cispo", "cispo": {"cispo_eps_clip_low": 1.0, "cispo_eps_clip_high": 4.0}},
    {"loss": "sapo"},
    {"loss": "dppo"},
]
THROUGH: list[dict[str, Any]] = [
    {"preset": "dapo", "edits": {"admission.kind": "all"}, "theirs": {"loss": "regular", "eps_clip_high": 0.28}},
    {"preset": "gspo", "edits": {"trust.low": 0.2, "trust.high": 0.28}, "theirs": LOSSES[3]},
    {"preset": "cispo", "edits": {}, "theirs": LOSSES[4]},
]


def algorithm(case: dict[str, Any], reduction: str) -> Any:
    """SkyRL's algorithm configuration of a case."""
    from skyrl.train.config import AlgorithmConfig
    from skyrl.train.config.config import CISPOConfig

    keys = {key: value for key, value in case.items() if key != "loss"}
    if "cispo" in keys:
        keys["cispo"] = CISPOConfig(**keys["cispo"])
    length = {"max_seq_len": 7} if reduction == "seq_mean_token_sum_norm" else {}
    return AlgorithmConfig(policy_loss_type=case["loss"], loss_reduction=reduction, use_kl_loss=False, **length, **keys)


def with_sampler(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The batch with the log-probs of another sampler beside those of the old policy."""
    away = [
        [round(value - 0.05 * ((member + place) % 3), 7) for place, value in enumerate(row)]
        for member, row in enumerate(rows["old_log_prob"])
    ]
    return rows | {"behaviour_log_prob": away}


def tensors_of(rows: dict[str, list[Any]]) -> dict[str, Any]:
    import torch

    return {name: torch.tensor(values, dtype=torch.float64) for name, values in rows.items()}


def step_loss(loss: Any, config: Any, rows: dict[str, list[Any]], size: int, order: list[int]) -> dict[str, Any]:
    """The loss of a whole step as SkyRL's trainer and worker make it: advantages scaled over the step, then the sum of
    the micro-batches' losses.
    """
    import torch
    from skyrl.backends.skyrl_train.utils.ppo_utils import apply_loss_reduction_to_advantages_minibatch

    tensors = tensors_of(rows)
    log_prob = tensors["log_prob"].requires_grad_()
    advantages = apply_loss_reduction_to_advantages_minibatch(
        advantages=tensors["advantage"][:, None].expand(6, 4) * tensors["mask"],
        loss_mask=tensors["mask"],
        loss_reduction=config.loss_reduction,
        micro_batch_size=size,
        max_seq_len=config.max_seq_len,
    )
    total = torch.zeros((), dtype=torch.float64)
    for start in range(0, 6, size):
        members = torch.tensor(order[start : start + size])
        value, _ = loss(
            log_prob[members],
            tensors["old_log_prob"][members],
            advantages[members],
            config=config,
            loss_mask=tensors["mask"][members],
            rollout_logprobs=tensors["behaviour_log_prob"][members],
        )
        total = total + value
    total.backward()
    return {"value": rounded(total.item()), "gradient": table(log_prob.grad)}


def record_losses(rows: dict[str, list[Any]]) -> list[dict[str, Any]]:
    from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry

    cases = []
    for case in LOSSES:
        for reduction in REDUCTIONS:
            loss, config = PolicyLossRegistry.get(case["loss"]), algorithm(case, reduction)
            whole, parts = (
                step_loss(loss, config, rows, size, order) for size, order in zip((6, 2), MICRO_BATCHES, strict=True)
            )
            assert whole == parts, (case, reduction)
            cases.append({"keys": case, "reduction": reduction} | whole)
    return cases


def record_estimators(answers: dict[str, Any]) -> list[dict[str, Any]]:
    import numpy
    import torch
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry

    length = torch.tensor(answers["length"])
    mask = (torch.arange(4) < length[:, None]).double()
    at_end = torch.zeros(9, 4, dtype=torch.float64).scatter(
        1, length[:, None] - 1, torch.tensor(answers["reward"], dtype=torch.float64)[:, None]
    )
    cases: list[dict[str, Any]] = []
    for name, settings in (
        ("grpo", {"grpo_norm_by_std": True}),
        ("grpo", {"grpo_norm_by_std": False}),
        ("rloo", {}),
    ):
        estimate = AdvantageEstimatorRegistry.get(name)
        advantage, _ = estimate(
            token_level_rewards=at_end.clone(),
            response_mask=mask,
            index=numpy.array(answers["uid"], dtype=object),
            **settings,
        )
        cases.append({"estimator": name, **settings, "advantage": table(advantage)})
    return cases


def through_ray(rows: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Objectives of ours, registered here and fetched by a worker of Ray from SkyRL's registry, beside SkyRL's own
    loss.
    """
    import ray

    from groupwise_trainers.skyrl import register

    folder = str(Path(__file__).parents[2])
    paths = [f"{folder}/src", f"{folder}/tests/oracles"]
    ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False, include_dashboard=False)
    cases = []
    for case in THROUGH:
        lines = register(case["preset"], case["edits"])
        name = lines[0].partition("=")[2]

        @ray.remote
        def fetched(name: str, reduction: str, keys: dict[str, Any]) -> dict[str, Any]:
            sys.path[:0] = paths
            typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]
            import record_skyrl
            from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry

            config = record_skyrl.algorithm({"loss": name, **keys}, reduction)
            return record_skyrl.step_loss(PolicyLossRegistry.get(name), config, rows, 2, record_skyrl.MICRO_BATCHES[1])

        reduction = next(line for line in lines if "loss_reduction" in line).partition("=")[2]
        ours = ray.get(fetched.remote(name, reduction, {}))
        keys = {key: value for key, value in case["theirs"].items() if key != "loss"}
        theirs = ray.get(fetched.remote(case["theirs"]["loss"], reduction, keys))
        cases.append({"preset": case["preset"], "overrides": lines, "groupwise": ours, "skyrl": theirs})
    ray.shutdown()
    return cases


def main() -> None:
    warnings.simplefilter("ignore")
    # On Python 3.11 SkyRL's own records need the newer TypedDict.
    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
    from importlib.metadata import version

    import torch

    assert version("skyrl") == "0.3.0", f"this records SkyRL 0.3.0, and {version('skyrl')} is installed"
    torch.set_default_dtype(torch.float64)
    rows, answers = with_sampler(batch()), rewards()
    head = {
        "source": "skyrl 0.3.0, skyrl.backends.skyrl_train.utils.ppo_utils",
        "command": "python tests/oracles/record_skyrl.py",
        "torch": torch.__version__,
    }
    losses, estimators, through = record_losses(rows), record_estimators(answers), through_ray(rows)
    lists = {"losses": losses, "estimators": estimators, "through_ray": through}
    text = ",\n".join(
        [
            f'{{"head": {json.dumps(head)}',
            f'"batch": {json.dumps(rows)}',
            f'"answers": {json.dumps(answers)}',
            *(
                f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]"
                for name, cases in lists.items()
            ),
        ]
    )
    GOLDEN.write_text(text + "}\n", encoding="utf-8")
    print(f"{len(losses)} losses, {len(estimators)} estimators, {len(through)} through Ray: {GOLDEN}")


if __name__ == "__main__":
    main()
