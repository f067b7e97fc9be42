"""The subclass against TRL's own trainer on a tiny model: real generation, real updates, gradients of every
parameter.
"""

import gc
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from peft import LoraConfig
from tests.integrations.trl import tiny
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import TrainerCallback

from groupwise.config import ConfigError, flatten
from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise_trainers.trl import GRPOTrainer
from groupwise_trainers.trl.trainer import STATE_FILE

pytestmark = pytest.mark.slow

CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
CASES = [
    (kind, level)
    for kind in (*CLIPPED, "cispo", "sapo", "vespo")
    for level in ("token", "sequence")
    if (kind, level) != ("vespo", "sequence")
]
KLS: dict[str, dict[str, Any]] = {
    "none": {},
    "k3": {"beta": 0.3, "use_bias_correction_kl": False},
    "corrected": {"beta": 0.3, "use_bias_correction_kl": True},
}


@pytest.fixture(scope="module", autouse=True)
def _quick_collection() -> Iterator[None]:
    """TRL collects garbage at the end of every run, which takes longer than the run while everything imported is looked
    at again.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trl")


class Gradients(TrainerCallback):
    """The gradient of every optimiser step, as one vector."""

    def __init__(self) -> None:
        self.steps: list[Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        parameters = given["model"].parameters()
        self.steps.append(
            torch.cat(
                [(torch.zeros_like(each) if each.grad is None else each.grad).flatten() for each in parameters]
            ).clone()
        )


def run(
    kind: type, folder: Path, keys: dict[str, Any], rewards: Any = tiny.early_letters, **given: Any
) -> tuple[Any, list[Tensor]]:
    """A trained trainer and the gradients of its steps."""
    gradients = Gradients()
    args = tiny.settings(folder / "out", **{"optim": "sgd", "learning_rate": 0.2} | keys)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = kind(
            tiny.model(folder / "model"),
            rewards,
            args,
            train_dataset=tiny.data(),
            processing_class=tiny.tokenizer(),
            callbacks=[gradients],
            **given,
        )
        trainer.train()
    return trainer, gradients.steps


def losses(trainer: Any) -> list[float]:
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def same(ours: tuple[Any, list[Tensor]], theirs: tuple[Any, list[Tensor]], tolerance: float = 5e-5) -> None:
    assert len(ours[1]) == len(theirs[1]) > 0
    for mine, other in zip(ours[1], theirs[1], strict=True):
        assert other.norm() > 1e-6
        assert float((mine - other).norm()) <= tolerance * float(other.norm())
    # A loss is a sum in fp32: it rounds with its size, as the gradient does.
    assert losses(ours[0]) == pytest.approx(losses(theirs[0]), rel=tolerance, abs=1e-5)


@pytest.mark.parametrize(("kind", "level"), CASES, ids=lambda value: value)
def test_loss_and_gradient_are_trls(folder: Path, kind: str, level: str) -> None:
    """Two passes over each generation, the second off-policy; the KL settings and clips go round the cases."""
    place = CASES.index((kind, level))
    kl = list(KLS)[place % 3]
    keys: dict[str, Any] = {
        "loss_type": kind,
        "importance_sampling_level": level,
        "scale_rewards": "none",
        "num_iterations": 2,
        "max_steps": 2,
        **KLS[kl],
    }
    if level == "sequence" and kl == "corrected":
        keys["use_bias_correction_kl"] = False
    if kind == "cispo":
        keys["epsilon_high"] = 1.5
    elif place % 2:
        keys |= {"epsilon_high": 0.28} | ({"delta": 1.4} if kind in CLIPPED else {})
    if kind == "bnpo":
        keys |= {"gradient_accumulation_steps": 1, "per_device_train_batch_size": 8}
    ours, theirs = run(GRPOTrainer, folder, keys), run(trl.GRPOTrainer, folder, keys)
    same(ours, theirs)
    assert ours[0].state.log_history[1]["on_policy_fraction"] < 1


@pytest.mark.parametrize(
    ("keys", "metric"),
    [
        ({"loss_type": "cispo"}, "cispo_clip_ratio"),
        ({"off_policy_mask_threshold": 0.01}, "off_policy_mask/dropped_mean"),
        ({"top_entropy_quantile": 0.3}, "top_entropy/trained_mean"),
        ({"entropy_coef": 0.05}, "policy_loss"),
        # Before the first measurement the bonus rests; between two targets it acts in the second step alone.
        ({"use_adaptive_entropy": True, "entropy_coef": 0.05, "entropy_target": 9.0}, "entropy_coef"),
        ({"use_adaptive_entropy": True, "entropy_coef": 0.05, "entropy_target": 0.01}, "entropy_coef"),
    ],
    ids=str,
)
def test_masks_and_entropy_are_trls(folder: Path, keys: dict[str, Any], metric: str) -> None:
    """Whole steps in one micro-batch, where TRL's quantile and its mean entropy are those of the step."""
    common = {
        "loss_type": "dapo",
        "scale_rewards": "none",
        "num_iterations": 3,
        "max_steps": 3,
        "gradient_accumulation_steps": 1,
        "per_device_train_batch_size": 8,
    }
    ours, theirs = run(GRPOTrainer, folder, common | keys), run(trl.GRPOTrainer, folder, common | keys)
    same(ours, theirs)
    lines, trls_lines = ours[0].state.log_history, theirs[0].state.log_history
    assert all(metric in line for line in lines[:3])
    for name in {"policy_loss", "entropy_coef"} & set(trls_lines[0]):
        trls_values = [line[name] for line in trls_lines[:3]]
        assert [line[name] for line in lines[:3]] == pytest.approx(trls_values, rel=5e-5, abs=1e-5), name
    if metric not in ("policy_loss", "entropy_coef"):
        plain = run(trl.GRPOTrainer, folder, common)
        assert any(float((a - b).norm()) > 1e-3 * float(b.norm()) for a, b in zip(ours[1], plain[1], strict=True))


def test_the_mean_over_a_micro_batch_of_trls_bnpo_is_ours_over_the_step(folder: Path) -> None:
    keys = {"loss_type": "bnpo", "scale_rewards": "none", "max_steps": 1}
    ours, theirs, whole = (
        run(GRPOTrainer, folder, keys),
        run(trl.GRPOTrainer, folder, keys),
        run(trl.GRPOTrainer, folder, keys | {"gradient_accumulation_steps": 1, "per_device_train_batch_size": 8}),
    )
    same(ours, whole)
    assert float((ours[1][0] - theirs[1][0]).norm()) > 1e-3 * float(theirs[1][0].norm())


@pytest.mark.parametrize(
    "keys",
    [{"scale_rewards": "group"}, {"scale_rewards": "batch"}, {"multi_objective_aggregation": "normalize_then_sum"}],
    ids=str,
)
def test_advantages_are_trls_but_for_its_small_number(folder: Path, keys: dict[str, Any]) -> None:
    rewards = [tiny.early_letters, tiny.length]
    ours, theirs = (
        run(kind, folder, {"max_steps": 1, "reward_weights": [1.0, 0.5], **keys}, rewards)[0]
        for kind in (GRPOTrainer, trl.GRPOTrainer)
    )
    mine, other = (torch.tensor(list(trainer._logs["advantages"]), dtype=torch.float64) for trainer in (ours, theirs))
    assert ours._logs["completion"] == theirs._logs["completion"]
    assert mine.abs().max() > 0.5
    assert torch.allclose(mine, other, rtol=1e-3)
    if "scale_rewards" in keys:
        values = torch.tensor(list(theirs._logs["rewards"]["early_letters"]), dtype=torch.float64)
        values = values + 0.5 * torch.tensor(list(theirs._logs["rewards"]["length"]), dtype=torch.float64).nan_to_num(
            0.0
        )
        std = values.view(-1, 4).std(1).repeat_interleave(4) if keys["scale_rewards"] == "group" else values.std()
        # TRL's rewards are fp32.
        assert torch.allclose(mine, other * (std + 1e-4) / std, rtol=1e-6, atol=1e-6)


def test_a_flat_group_is_exactly_zero_here_and_not_in_trl(folder: Path) -> None:
    def flat(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        return [0.1 * (1 + (prompts.index(prompt) > 0)) for prompt in prompts]

    ours = run(GRPOTrainer, folder, {"max_steps": 1}, flat)[0]
    assert set(ours._logs["advantages"]) == {0.0}
    assert ours.state.log_history[0]["groups/flat"] == 1
    assert ours.state.log_history[0]["grad_norm"] == 0


def test_an_answer_that_no_reward_scores_is_compared_with_nothing(folder: Path) -> None:
    trainer = run(GRPOTrainer, folder, {"max_steps": 1}, tiny.length, rollout_func=answers(False), objective="bnpo")[0]
    found, texts = list(trainer._logs["advantages"]), list(trainer._logs["completion"])
    assert texts[0].startswith("a")
    assert found[0] == 0.0
    assert trainer.state.log_history[0]["members/unscorable"] == sum(text.startswith("a") for text in texts)
    scored = torch.tensor([len(text) / 4 for text in texts[1:4]], dtype=torch.float64)
    assert found[1:4] == pytest.approx(((scored - scored.mean()) / scored.std()).tolist())


def answers(behaviour: bool) -> Callable[..., dict[str, Any]]:
    """A sampler of its own: answers that depend on the place of the prompt among those of all processes, with another
    engine's log-probs.
    """

    def sample(prompts: list[str], trainer: Any) -> dict[str, Any]:
        first = trainer.accelerator.process_index * len(prompts)
        completion = [
            [2 + (5 * place + 3 * token) % 16 for token in range(1 + (2 * place + len(prompt)) % 5)]
            for place, prompt in enumerate(prompts, first)
        ]
        away = [
            [-2.6 + 0.4 * ((place + token) % 3) for token in range(len(answer))]
            for place, answer in enumerate(completion, first)
        ]
        return {
            "prompt_ids": trainer.processing_class(prompts)["input_ids"],
            "completion_ids": completion,
            "logprobs": away if behaviour else None,
        }

    return sample


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], type]:
    """TRL with its correction for vLLM switched on; the log-probs are those of `answers`, so no engine is started."""

    def made(kind: Any) -> type:
        class Corrected(kind):
            def __init__(self, *arguments: Any, **given: Any) -> None:
                super().__init__(*arguments, **given)
                self.use_vllm, self._last_loaded_step = True, 0

            def _generate(self, prompts: Any) -> Any:
                self._last_loaded_step = self.state.global_step
                return super()._generate(prompts)

        return Corrected

    return made


CORRECTIONS: list[tuple[str, float | None, float, dict[str, Any]]] = [
    ("token_truncate", None, 1.1, {"kind": "truncate", "maximum": 1.1}),
    ("token_mask", 0.5, 1.5, {"kind": "interval", "lower": 0.5, "upper": 1.5}),
    ("token_truncate", 0.9, 1.1, {"kind": "truncate", "minimum": 0.9, "maximum": 1.1}),
    ("sequence_mask", None, 3.0, {"kind": "mask", "weight": "product", "maximum": 3.0}),
    ("sequence_mask", 0.1, 5.0, {"kind": "mask", "weight": "product", "minimum": 0.1, "maximum": 5.0}),
    ("sequence_truncate", 0.6, 1.4, {"kind": "truncate", "level": "member", "minimum": 0.6, "maximum": 1.4}),
]
"""TRL's mode with its bounds, and our slot of the same numbers."""


@pytest.mark.parametrize(("mode", "low", "high", "slot"), CORRECTIONS, ids=str)
def test_the_correction_for_another_sampler_is_trls(
    folder: Path, vllm: Callable[[Any], type], mode: str, low: float | None, high: float, slot: dict[str, Any]
) -> None:
    names = ("mode", "clip_min", "clip_max")
    keys = {f"vllm_importance_sampling_{name}": value for name, value in zip(names, (mode, low, high), strict=True)}
    correction = {f"correction.{name}": value for name, value in slot.items()}
    common = {"scale_rewards": "none", "num_iterations": 2, "max_steps": 2, "loss_type": "dapo"}
    theirs = run(vllm(trl.GRPOTrainer), folder, common | keys, rollout_func=answers(True))
    edits = {"advantage.kind": "centred", **correction}
    ours = run(GRPOTrainer, folder, common | keys, rollout_func=answers(True), objective="bnpo", edits=edits)
    same(ours, theirs)
    assert ours[0].state.log_history[0]["correction/mean"] != pytest.approx(1.0, abs=1e-3)
    plain = run(
        GRPOTrainer, folder, common, rollout_func=answers(True), objective="bnpo", edits={"advantage.kind": "centred"}
    )
    assert float((plain[1][0] - ours[1][0]).norm()) > 1e-3


def test_a_token_that_the_sampler_did_not_score_is_not_corrected(folder: Path) -> None:
    def unknown(prompts: list[str], trainer: Any) -> dict[str, Any]:
        sampled = answers(True)(prompts, trainer)
        return sampled | {"logprobs": [[None for _ in line] for line in sampled["logprobs"]]}

    edits = {"advantage.kind": "centred"}
    without = run(GRPOTrainer, folder, {"max_steps": 1}, rollout_func=answers(False), objective="bnpo", edits=edits)
    ours = run(GRPOTrainer, folder, {"max_steps": 1}, rollout_func=unknown, objective="bnpo+tis", edits=edits)
    assert torch.allclose(ours[1][0], without[1][0], rtol=1e-4, atol=1e-7)


def test_cut_off_answers_do_not_train(folder: Path) -> None:
    keys = {"mask_truncated_completions": True, "scale_rewards": "none", "loss_type": "grpo", "max_steps": 1}
    ours = run(GRPOTrainer, folder, keys)
    same(ours, run(trl.GRPOTrainer, folder, keys))
    assert 0 < ours[0].state.log_history[0]["completions/clipped_ratio"] < 1


def test_several_optimiser_steps_on_one_generation_take_its_parts_in_order(folder: Path) -> None:
    keys: dict[str, Any] = {
        "loss_type": "grpo",
        "scale_rewards": "none",
        "per_device_train_batch_size": 2,
        "steps_per_generation": 4,
        "max_steps": 4,
    }
    ours, theirs = (run(kind, folder, keys, rollout_func=answers(False)) for kind in (GRPOTrainer, trl.GRPOTrainer))
    same(ours, theirs)
    # A batch's method scores the parts of a step itself: one pass over them in one piece is the same.
    edits = {"trust.share": 0.2, "trust.lower": 0.01}
    keys = {"per_device_train_batch_size": 2, "steps_per_generation": 4, "max_steps": 4}
    whole = keys | {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "steps_per_generation": 2}
    split, one = (
        run(GRPOTrainer, folder, each, rollout_func=answers(False), objective="clip_cov", edits=edits)
        for each in (keys, whole)
    )
    same(split, one)


def test_trls_token_means_count_a_generation_and_ours_a_step(folder: Path) -> None:
    keys = {
        "loss_type": "dapo",
        "scale_rewards": "none",
        "per_device_train_batch_size": 2,
        "steps_per_generation": 4,
        "max_steps": 1,
    }
    ours, theirs = (run(kind, folder, keys, rollout_func=answers(False)) for kind in (GRPOTrainer, trl.GRPOTrainer))
    tokens = ours[0]._sampled["train"].batch.acted.mask.sum(1)
    share = float(tokens[:4].sum() / (tokens.sum() / 2))
    assert share != 1.0
    torch.testing.assert_close(theirs[1][0], share * ours[1][0], rtol=1e-4, atol=1e-6)


def test_a_divergence_in_the_reward_reads_the_policy_that_acted(folder: Path) -> None:
    # One pass a generation, for which TRL keeps no old log-probs. Before the first step the policy is the reference:
    # nothing is subtracted.
    edits = {"divergence.beta": 10.0}
    ours = run(GRPOTrainer, folder, {"max_steps": 1}, objective="reinforce_pp", edits=edits)[0]
    without = run(GRPOTrainer, folder, {"max_steps": 1}, objective="reinforce_pp", edits={"divergence.kind": "none"})[0]
    assert list(ours._logs["advantages"]) == pytest.approx(list(without._logs["advantages"]), abs=1e-4)
    assert max(ours._logs["advantages"]) > 0.5


def test_trls_own_correction_is_on_where_the_objective_reads_the_sampler(folder: Path) -> None:
    keys = {"max_steps": 1, "vllm_importance_sampling_correction": False}
    with pytest.raises(
        ValueError, match="vllm_importance_sampling_correction = False contradicts the objective 'bnpo\\+tis'"
    ):
        run(GRPOTrainer, folder, keys, rollout_func=answers(True), objective="bnpo+tis")
    for name, expected in (("bnpo+tis", True), ("bnpo", False), ("dppo_tv", True)):
        assert (
            run(GRPOTrainer, folder, {"max_steps": 1}, rollout_func=answers(True), objective=name)[
                0
            ].vllm_importance_sampling_correction
            is expected
        )


@pytest.mark.parametrize("kind", ["dapo", "grpo", "luspo"])
def test_a_tools_tokens_do_not_train(folder: Path, kind: str) -> None:
    def with_tool(prompts: list[str], trainer: Any) -> dict[str, Any]:
        sampled = answers(False)(prompts, trainer)
        return sampled | {
            "env_mask": [[int(place != 1) for place in range(len(line))] for line in sampled["completion_ids"]]
        }

    keys = {"scale_rewards": "none", "loss_type": kind, "max_steps": 1, "num_iterations": 2}
    ours = run(GRPOTrainer, folder, keys, rollout_func=with_tool)
    same(ours, run(trl.GRPOTrainer, folder, keys, rollout_func=with_tool))
    free = run(GRPOTrainer, folder, keys, rollout_func=answers(False))
    assert float((ours[1][0] - free[1][0]).norm()) > 1e-3


def served(name: str) -> dict[str, Any] | None:
    """The changes under which a preset runs in TRL; `None` where it is not for language models."""
    objective = Objective.preset(name)
    if objective.requires - {"log_prob", "entropy", "score_norm"} or "step_size" in objective.requires_rollouts:
        return None
    return {"admission.kind": "informative"} if objective.admission.kind == "resample" else {}


@pytest.mark.parametrize("name", [name for name in method_names() if served(name) is not None])
def test_every_preset_trains_and_accumulation_changes_nothing(folder: Path, name: str) -> None:
    keys = {"num_iterations": 2, "max_steps": 2, "steps_per_generation": 2}
    edits = served(name)
    split = run(GRPOTrainer, folder, keys, rollout_func=answers(True), objective=name, edits=edits)
    whole = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_generation": 1}
    one = run(GRPOTrainer, folder, keys | whole, rollout_func=answers(True), objective=name, edits=edits)
    same(split, one, 1e-4)
    assert split[0].objective_state.step == 2


def test_what_the_head_gives_is_what_the_logits_say(folder: Path) -> None:
    trainer, _ = run(
        GRPOTrainer,
        folder,
        {"max_steps": 1, "temperature": 0.7},
        objective="gradient_adaptive",
        edits={"credit.gradient_adaptive.signal": "score_norm"},
    )
    inputs = trainer._buffered_inputs[0]
    scored, _ = trainer._score(trainer.model, inputs)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        logits = trainer.model(input_ids=ids, attention_mask=seen).logits[:, :-1] / 0.7
    probability = logits.softmax(-1)[:, -inputs["completion_ids"].shape[1] :]
    one_hot = torch.nn.functional.one_hot(inputs["completion_ids"], 18)
    mask = inputs["completion_mask"].bool()
    assert torch.allclose(scored.score_norm[mask] ** 2, (one_hot - probability).square().sum(-1)[mask], atol=1e-6)
    assert torch.allclose(scored.entropy[mask], torch.special.entr(probability).sum(-1)[mask], atol=1e-5)


def test_an_adapter_is_trained_against_the_model_below_it(folder: Path) -> None:
    keys = {
        "loss_type": "grpo",
        "beta": 0.3,
        "use_bias_correction_kl": False,
        "scale_rewards": "none",
        "num_iterations": 2,
        "learning_rate": 2.0,
    }
    adapter = {"peft_config": LoraConfig(r=4, target_modules="all-linear", init_lora_weights="orthogonal")}
    ours = run(GRPOTrainer, folder, keys, **adapter)
    same(ours, run(trl.GRPOTrainer, folder, keys, **adapter))
    assert ours[0].ref_model is None
    assert ours[0].state.log_history[1]["kl"] > 0


def test_the_objective_decides_whether_there_is_a_reference(folder: Path) -> None:
    assert run(GRPOTrainer, folder, {"max_steps": 1}, objective="bnpo")[0].ref_model is None
    adaptive = {"divergence.beta": {"kind": "adaptive", "initial": 0.1, "target": 0.01}}
    assert run(GRPOTrainer, folder, {"max_steps": 1}, objective="grpo", edits=adaptive)[0].ref_model is not None


def test_schedules_follow_the_optimiser_steps_and_a_step_without_a_term_changes_nothing(folder: Path) -> None:
    # 0, then a half: both on one generation, which was prepared at step 0.
    keys = {"num_iterations": 2, "max_steps": 2}
    edits = {"policy_weight": {"kind": "linear", "start": 0.0, "end": 1.0, "num_steps": 2}}
    steps = run(GRPOTrainer, folder, keys, rollout_func=answers(True), objective="bnpo", edits=edits)[1]
    whole = run(GRPOTrainer, folder, {"max_steps": 1}, rollout_func=answers(True), objective="bnpo")[1]
    assert not steps[0].any()
    torch.testing.assert_close(steps[1], whole[0] / 2, rtol=1e-4, atol=1e-7)


def test_metrics_have_our_names_and_trls_stay(folder: Path) -> None:
    trainer, _ = run(
        GRPOTrainer,
        folder,
        {"num_iterations": 2, "eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4},
        eval_dataset=tiny.data(2),
    )
    logged = trainer.state.log_history[0]
    assert {
        "zero_gradient_fraction/positive",
        "ratio/p50",
        "effective_sample_size",
        "groups/flat",
        "entropy",
        "clip_ratio/low_mean",
    } <= set(logged)
    assert {"reward", "reward_std", "completions/mean_length", "step_time", "grad_norm"} <= set(logged)
    assert not [name for name in logged if name.startswith("state/")]
    evaluated = next(line for line in trainer.state.log_history if "eval_loss" in line)
    assert {"eval_reward", "eval_zero_gradient_fraction/positive", "eval_groups/flat"} <= set(evaluated)
    # An evaluation in the middle leaves training as it was.
    alone = run(GRPOTrainer, folder, {"num_iterations": 2})[0]
    assert trainer.objective_state == alone.objective_state


def test_state_is_saved_and_restored_with_trls_checkpoints(folder: Path, tmp_path: Path) -> None:
    keys = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "num_iterations": 1, "optim": "adamw_torch"}
    edits = {
        "divergence.kind": "k3",
        "divergence.beta": {"kind": "adaptive", "initial": 0.1, "target": 0.01, "horizon": 2},
        "advantage.kind": "running_std",
    }
    (tmp_path / "model").symlink_to(tiny.model(folder / "model").config._name_or_path)
    straight = run(GRPOTrainer, tmp_path, keys, objective="grpo", edits=edits)[0]
    record = json.loads((tmp_path / "out" / "checkpoint-2" / STATE_FILE).read_text())
    assert record["state"]["step"] == 2
    assert record["state"]["running"]["weight"] > 0
    assert straight.objective_state.step == 4
    assert straight.objective_state.beta != record["state"]["beta"] != 0.1

    def resumed(**given: Any) -> Any:
        args = tiny.settings(tmp_path / "again", **{"optim": "sgd", "learning_rate": 0.2} | keys)
        parts = {"train_dataset": tiny.data(), "processing_class": tiny.tokenizer()}
        trainer = GRPOTrainer(tiny.model(tmp_path / "model"), tiny.early_letters, args, **parts, **given)
        trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
        return trainer

    again = resumed(objective="grpo", edits=edits)
    assert flatten(again.objective_state.model_dump()) == pytest.approx(flatten(straight.objective_state.model_dump()))
    for mine, other in zip(again.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-6)
    with pytest.raises(ValueError, match=r"belongs to another objective: trust\.high was 0\.2 and is 0\.3"):
        resumed(objective="grpo", edits=edits | {"trust.high": 0.3})
    (tmp_path / "out" / "checkpoint-2" / STATE_FILE).unlink()
    with pytest.warns(UserWarning, match="is missing: schedules go on at step 2"):
        assert resumed(objective="grpo", edits=edits).objective_state.step == 4


def test_the_arguments_that_are_given_stay_as_they_are(folder: Path) -> None:
    args = tiny.settings(folder / "out")
    before = args.to_dict()
    trainer = GRPOTrainer(
        tiny.model(folder / "model"),
        tiny.early_letters,
        args,
        train_dataset=tiny.data(),
        processing_class=tiny.tokenizer(),
        objective="grpo",
    )
    assert args.to_dict() == before
    assert trainer.args.beta == 0.04 != args.beta


def test_an_objective_needs_no_preset(folder: Path) -> None:
    objective = Objective.preset("gspo", **{"trust.low": 0.1, "trust.high": 0.1, "advantage.kind": "centred"})
    keys = {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 0.1,
        "epsilon_high": 0.1,
        "scale_rewards": "none",
        "num_iterations": 2,
    }
    same(run(GRPOTrainer, folder, keys, objective=objective), run(trl.GRPOTrainer, folder, keys))
    with pytest.raises(ValueError, match="edits change a preset by its name"):
        run(GRPOTrainer, folder, {}, objective=objective, edits={"trust.low": 0.2})
    with pytest.raises(ConfigError, match="grpo"):
        run(GRPOTrainer, folder, {}, objective="gropo")


def test_training_again_begins_at_a_generation_with_the_first_state(folder: Path) -> None:
    trainer, _ = run(GRPOTrainer, folder, {"max_steps": 1})
    trainer._step = 1  # as after an interrupt inside an optimiser step
    trainer.train()
    assert trainer._step == 2
    assert trainer.objective_state.step == trainer.state.global_step == 1


def test_prompts_are_encoded_as_our_domains_encode_them(folder: Path) -> None:
    trainer, _ = run(GRPOTrainer, folder, {"max_steps": 1})
    tokenizer = trainer.processing_class
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<eos> $A <eos>", special_tokens=[("<eos>", tokenizer.eos_token_id)]
    )
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }}{% if not loop.last or m.role == 'user' %}p{% endif %}{% endfor %}"
    )
    eos, a, b, p = 1, 2, 3, 17
    assert trainer._tokenize_prompts(["ab", "<eos>b"]) == ([[eos, a, b], [eos, b]], None, {})
    chat = [{"role": "user", "content": "a", "tool_calls": None}, {"role": "assistant", "content": "b"}]
    assert trainer._tokenize_prompts([chat, chat[:1]]) == ([[a, p, b], [a, p]], None, {})


def test_rewards_read_special_tags(folder: Path) -> None:
    seen: list[Any] = []

    def reads(prompts: Any, completions: list[Any], **columns: Any) -> list[float]:
        seen.extend(completions)
        return [0.0] * len(completions)

    trainer, _ = run(GRPOTrainer, folder, {"max_steps": 1}, reads)
    trainer.processing_class.add_special_tokens({"additional_special_tokens": ["c", "d"]})
    ids = [[2, 4, 5, 1], [4, 1]]
    seen.clear()
    rows = [{"prompt": "a"}] * 2
    trainer._calculate_rewards(
        rows, ["a", "a"], trainer.processing_class.batch_decode(ids, skip_special_tokens=True), ids
    )
    assert [text.replace(" ", "") for text in seen] == ["acd", "c"]
    seen.clear()
    chats = [[{"role": "assistant", "content": ""}], [{"role": "assistant", "content": "other"}]]
    trainer._calculate_rewards(rows, ["a", "a"], chats, [[4, 1], [4, 1]])
    assert [chat[0]["content"] for chat in seen] == ["c", "other"]
