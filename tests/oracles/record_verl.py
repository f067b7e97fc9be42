"""Records what verl 0.9's own policy losses and advantage estimators give on one small batch, in value and gradient.

    python tests/oracles/record_verl.py

Run in an environment that has verl 0.9.1 (`make oracles` makes one); writes tests/golden/verl_0_9.json, which the tests
read without verl. The functions are those of `verl.trainer.ppo.core_algos` as they are, in fp64. It also registers
objectives of ours with verl and calls them through verl's own `ppo_loss`.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# By its own folder: one of verl's requirements installs a package called `tests`, which would hide ours.
from record_trl import batch, rounded

GOLDEN = Path(__file__).parents[1] / "golden" / "verl_0_9.json"
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
WHOLE = {"dp_size": 2, "batch_num_tokens": 40, "global_batch_size": 12}
WEIGHTS = [[1.5, 0.5, 1.0, 2.0]] * 6


def losses() -> list[dict[str, Any]]:
    """Every case: the name of the loss, the actor's keys, the keys of its policy_loss table, the counts of the whole
    step.
    """
    cases: list[dict[str, Any]] = []

    def add(name: str, mode: str = "token-mean", **more: Any) -> None:
        cases.append(
            {"loss": name, "loss_agg_mode": mode, "actor": {}, "policy_loss": {}, "whole": {}, "weights": False} | more
        )

    for mode in MODES:
        for clip in ({}, {"clip_ratio_high": 0.28, "clip_ratio_c": 1.5}):
            add("vanilla", mode, actor=clip)
        add("vanilla", mode, whole=WHOLE | ({"loss_scale_factor": 7} if mode.endswith("norm") else {}))
        add("gspo", mode, actor={"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4})
        add("gspo", mode, actor={"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}, whole=WHOLE)
    add("vanilla", weights=True)
    for name, (low, high) in itertools.product(("dppo_tv", "dppo_kl"), ((0.15, 0.15), (0.15, 0.01))):
        add(name, actor={"clip_ratio_low": low, "clip_ratio_high": high, "clip_ratio_c": 20.0})
    for name in ("dppo_tv", "dppo_kl"):
        add(name, actor={"clip_ratio_low": 0.15, "clip_ratio_high": 0.15, "clip_ratio_c": 1.2})
    add("sapo", "seq-mean-token-mean")
    add("sapo", "token-mean", actor={"tau_pos": 0.7, "tau_neg": 1.3})
    add("sapo", "seq-mean-token-mean", whole=WHOLE)
    add("gpg")
    add("gpg", "seq-mean-token-sum", whole=WHOLE)
    add(
        "clip_cov",
        actor={"clip_ratio_low": 1.0, "clip_ratio_high": 1.0},
        policy_loss={"clip_cov_ratio": 1.0, "clip_cov_lb": 0.2, "clip_cov_ub": 1.0},
    )
    add(
        "clip_cov",
        actor={"clip_ratio_low": 0.2, "clip_ratio_high": 0.2},
        policy_loss={"clip_cov_ratio": 1.0, "clip_cov_lb": 0.2, "clip_cov_ub": 1.0},
    )
    for share, coefficient in ((0.2, 1.0), (0.5, 0.1)):
        add("kl_cov", policy_loss={"kl_cov_ratio": share, "ppo_kl_coef": coefficient})
    add("geo_mean", actor={"clip_ratio_low": 0.4, "clip_ratio_high": 0.4})
    add("dro", policy_loss={"dro_beta": 0.5})
    add("cispo", actor={"clip_ratio_low": 1.0, "clip_ratio_high": 4.0})
    add("cispo", actor={"clip_ratio_low": 1.0, "clip_ratio_high": 0.28})
    add("cispo", actor={"clip_ratio_low": 0.2, "clip_ratio_high": 0.28})
    add("bypass_mode", policy_loss={"rollout_correction": {"loss_type": "ppo_clip", "rollout_is": None}})
    add(
        "bypass_mode",
        policy_loss={
            "rollout_correction": {"loss_type": "reinforce", "rollout_is": "token", "rollout_is_threshold": 1.2}
        },
    )
    return cases


def actor_config(case: dict[str, Any]) -> Any:
    from verl.trainer.config import RolloutCorrectionConfig
    from verl.workers.config import ActorConfig, PolicyLossConfig

    chosen = dict(case["policy_loss"])
    if "rollout_correction" in chosen:
        chosen["rollout_correction"] = RolloutCorrectionConfig(**chosen["rollout_correction"])
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        loss_agg_mode=case["loss_agg_mode"],
        policy_loss=PolicyLossConfig(**chosen),
        **case["actor"],
    )
    config.global_batch_info.update(case["whole"])
    return config


def record_loss(case: dict[str, Any], given: dict[str, list[Any]]) -> dict[str, Any]:
    """The loss and its gradient by the log-probs."""
    import torch
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    tensors = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in given.items()}
    log_prob = tensors["log_prob"].requires_grad_()
    loss, _ = get_policy_loss_fn(case["loss"])(
        old_log_prob=tensors["old_log_prob"],
        log_prob=log_prob,
        advantages=tensors["advantage"][:, None].expand(6, 4),
        response_mask=tensors["mask"],
        loss_agg_mode=case["loss_agg_mode"],
        config=actor_config(case),
        rollout_is_weights=torch.tensor(WEIGHTS, dtype=torch.float64) if case["weights"] else None,
    )
    loss.backward()
    return case | {"value": rounded(loss.item()), "gradient": table(log_prob.grad)}


def rewards() -> dict[str, Any]:
    """Nine answers to three prompts: two groups of rewards, one of them flat, and one of four with a reward twice."""
    return {
        "uid": ["a", "b", "a", "b", "c", "a", "c", "b", "b"],
        "length": [3, 4, 1, 2, 4, 2, 3, 1, 4],
        "reward": [1.0, 0.5, 0.0, 2.0, 0.7, 0.25, 0.7, -1.0, 0.5],
        "style": [0.0, 1.0, 3.0, 1.0, 2.0, 0.5, 1.0, 0.0, 4.0],
        "baseline": [0.5, 0.5, 0.25, 1.0, 0.0, 0.25, 0.75, 0.0, 0.5],
    }


ESTIMATORS: list[dict[str, Any]] = [
    {"estimator": "grpo"},
    {"estimator": "grpo", "norm_adv_by_std_in_grpo": False},
    {"estimator": "grpo_vectorized"},
    {"estimator": "gdpo"},
    {"estimator": "grpo_passk"},
    {"estimator": "reinforce_plus_plus_baseline"},
    {"estimator": "reinforce_plus_plus"},
    {"estimator": "rloo"},
    {"estimator": "rloo_vectorized"},
    {"estimator": "opo"},
    {"estimator": "gpg"},
    {"estimator": "remax"},
    {"estimator": "gae", "critic": "silent"},
    {"estimator": "gae", "critic": "baseline"},
    {"estimator": "optimal_token_baseline"},
    {"estimator": "tir_optimal_token_baseline"},
]


def record_estimator(case: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The advantages `[B, T]`; the reward stands at an answer's last token."""
    import numpy
    import torch
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    length = torch.tensor(given["length"])
    mask = (torch.arange(4) < length[:, None]).double()

    def at_end(values: list[float]) -> Any:
        return torch.zeros(9, 4, dtype=torch.float64).scatter(
            1, length[:, None] - 1, torch.tensor(values, dtype=torch.float64)[:, None]
        )

    if case["estimator"] == "gae":
        # Its values come from a trained critic. Two that need no training: one that says 0, and one that says one
        # number an answer.
        values = (
            torch.zeros(9, 1, dtype=torch.float64)
            if case["critic"] == "silent"
            else torch.tensor(given["baseline"], dtype=torch.float64)[:, None]
        )
        call = get_adv_estimator_fn("gae")
        found, _ = call(
            token_level_rewards=at_end(given["reward"]),
            values=values.expand(9, 4) * mask,
            response_mask=mask,
            gamma=1.0,
            lam=1.0,
        )
        return case | {"advantage": table(found)}
    settings = {key: value for key, value in case.items() if key != "estimator"}
    more: dict[str, Any] = {}
    config = AlgoConfig(
        adv_estimator=case["estimator"],
        gdpo_reward_keys=["reward", "style"],
        gdpo_reward_weights=[1.0, 0.5],
        **settings,
    )
    if case["estimator"] == "gdpo":
        attention = torch.cat([torch.ones(9, 1), mask], 1).long()
        values = {name: numpy.array(given[name]) for name in ("reward", "style")}
        more = {"non_tensor_batch": values, "batch": {"prompts": torch.ones(9, 1), "attention_mask": attention}}
    if case["estimator"] == "remax":
        more = {"reward_baselines": torch.tensor(given["baseline"], dtype=torch.float64)}
    if "optimal_token" in case["estimator"]:
        more = {
            "old_log_probs": torch.full((9, 4), -0.5, dtype=torch.float64),
            "sum_pi_squared": torch.full((9, 4), 0.5, dtype=torch.float64),
        }
    if case["estimator"] == "grpo":
        more = settings
    found, _ = get_adv_estimator_fn(case["estimator"])(
        token_level_rewards=at_end(given["reward"]),
        response_mask=mask,
        index=numpy.array(given["uid"], dtype=object),
        config=config,
        **more,
    )
    return case | {"advantage": table(found)}


def through_verl(given: dict[str, list[Any]]) -> dict[str, Any]:
    """verl's own losses and ours of the same settings, both called by verl's `ppo_loss`, with its KL term and the
    counts of a step on two processes.
    """
    import torch
    from tensordict import TensorDict
    from verl.workers.utils.losses import ppo_loss

    from groupwise_trainers.verl import register

    register("dual_clip", name="groupwise_vanilla")
    register(
        "grpo", {"trust.kind": "dual_clip", "divergence.kind": "k1", "divergence.beta": 0.5}, name="groupwise_with_kl"
    )
    pairs = {
        "vanilla": ("vanilla", "groupwise_vanilla", "token-mean", {}),
        "with_kl": (
            "vanilla",
            "groupwise_with_kl",
            "seq-mean-token-mean",
            {"use_kl_loss": True, "kl_loss_type": "kl", "kl_loss_coef": 0.5},
        ),
    }
    found: dict[str, Any] = {}
    for name, (theirs, ours, mode, keys) in pairs.items():
        for loss in (theirs, ours):
            tensors = {key: torch.tensor(rows, dtype=torch.float64) for key, rows in given.items()}
            log_prob = tensors["log_prob"].requires_grad_()
            attention = torch.cat([torch.ones(6, 1), tensors["mask"]], 1).long()
            # verl's packed outputs: the score of a token stands at the place before it.
            shifted = torch.cat([log_prob, torch.zeros(6, 1, dtype=torch.float64)], 1)
            config = actor_config(
                {"loss_agg_mode": mode, "actor": keys, "policy_loss": {"loss_mode": loss}, "whole": {}}
            )
            data = TensorDict(
                {
                    "prompts": torch.ones(6, 1),
                    "responses": torch.ones(6, 4),
                    "attention_mask": attention,
                    "response_mask": tensors["mask"],
                    "old_log_probs": tensors["old_log_prob"],
                    "ref_log_prob": tensors["reference_log_prob"],
                    "advantages": tensors["advantage"][:, None].expand(6, 4),
                },
                batch_size=[6],
            )
            for key, value in WHOLE.items():
                data.set_non_tensor(key, value)
            value, metrics = ppo_loss(config, {"log_probs": shifted[attention.bool()]}, data)
            value.backward()
            found[f"{name}/{'verl' if loss == theirs else 'groupwise'}"] = {
                "value": rounded(value.item()),
                "gradient": table(log_prob.grad),
            }
            assert loss == theirs or any(key.startswith("actor/zero_gradient_fraction") for key in metrics), sorted(
                metrics
            )
    return found


def key_names() -> dict[str, list[str]]:
    """The keys of verl's configuration that the table of the documentation must name, by the table they stand in."""
    from dataclasses import fields

    from verl.trainer.config import AlgoConfig, FilterGroupsConfig, KLControlConfig, RolloutCorrectionConfig
    from verl.workers.config import ActorConfig, PolicyLossConfig

    tables = {
        "actor": ActorConfig,
        "policy_loss": PolicyLossConfig,
        "algorithm": AlgoConfig,
        "kl_ctrl": KLControlConfig,
    }
    tables |= {"filter_groups": FilterGroupsConfig, "rollout_correction": RolloutCorrectionConfig}
    return {
        name: sorted(field.name for field in fields(kind) if not field.name.startswith("_"))
        for name, kind in tables.items()
    }


def table(tensor: Any) -> list[list[float]]:
    return [[rounded(value) if math.isfinite(value) else None for value in row] for row in tensor.tolist()]


def main() -> None:
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
    os.environ["VERL_USE_EXTERNAL_PLUGINS"] = "none"
    import torch
    import verl

    assert verl.__version__ == "0.9.1", f"this records verl 0.9.1, and {verl.__version__} is installed"
    torch.set_default_dtype(torch.float64)
    given, answers = batch(), rewards()
    cases = [record_loss(case, given) for case in losses()]
    estimators = [record_estimator(case, answers) for case in ESTIMATORS]
    head = {
        "source": f"verl {verl.__version__}, verl.trainer.ppo.core_algos",
        "command": "python tests/oracles/record_verl.py",
        "torch": torch.__version__,
    }
    parts = SimpleNamespace(
        losses=",\n".join(json.dumps(case) for case in cases),
        estimators=",\n".join(json.dumps(case) for case in estimators),
        through=",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in through_verl(given).items()),
    )
    text = (
        f'{{"head": {json.dumps(head)},\n"batch": {json.dumps(given)},\n"keys": {json.dumps(key_names())},\n"weights":'
        f' {json.dumps(WEIGHTS)},\n"answers": {json.dumps(answers)},\n"losses": [\n{parts.losses}\n],\n"estimators":'
        f' [\n{parts.estimators}\n],\n"through_ppo_loss": {{\n{parts.through}\n}}}}\n'
    )
    GOLDEN.write_text(text, encoding="utf-8")
    print(f"{len(cases)} losses, {len(estimators)} estimators, {len(text) // 1024} KiB: {GOLDEN}")


if __name__ == "__main__":
    main()
