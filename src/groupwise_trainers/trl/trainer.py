"""TRL's `GRPOTrainer` with any objective of ours: TRL samples, rewards, batches and saves; advantages, weights and loss
are computed here.
"""

import copy
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
import trl
from peft import PeftModel
from torch import Tensor
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer as TRLTrainer
from trl.trainer.utils import add_fused_lm_head, get_config_model_id

from groupwise.causal_lm.prompt import encode_prompts, render_chat, without_nulls
from groupwise.causal_lm.sampler import end_ids, written_texts
from groupwise.config import ConfigError, difference, validate
from groupwise.objective import Objective
from groupwise.objective.batch import ObjectiveState
from groupwise.objective.objective import warnings as doubts
from groupwise.records import Scored
from groupwise.statistics import Statistic, add, finish, reduce_statistics
from groupwise_trainers.trl.keys import DECIDED, contradictions, objective_of, passes, refusals, remarks
from groupwise_trainers.trl.rollouts import (
    Sampled,
    Window,
    behaviour_log_prob,
    decision_mask,
    gathered_rollouts,
    local_members,
)
from groupwise_trainers.trl.version import missing

STATE_FILE = "groupwise_objective.json"
if lacking := list(missing(TRLTrainer, {field.name for field in fields(GRPOConfig)}, set(DECIDED))):
    raise ImportError(
        f"TRL {trl.__version__} lacks {', '.join(lacking)}, on which groupwise_trainers.trl builds; write: pip"
        " install 'trl>=1.16,<1.17'"
    )
_ROW = "groupwise_row"
_MODEL_INPUTS = (
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
)
_LOGGED_BY_TRL = ("reward", "reward_std", "frac_reward_zero_std")
_NOT_LOGGED = ("loss", "state/")


class GRPOTrainer(TRLTrainer):
    """`trl.GRPOTrainer` whose loss is an `Objective`.

    The loss of an optimiser step is `objective.loss` over all its micro-batches on all processes, with weights from the
    counts of the whole step, so neither accumulation nor the number of processes changes it. A step that reaches over
    two generations has two such losses, each weighed by its number of micro-batches. TRL's keys that the
    objective decides must be left at their defaults or agree with it; without `objective=` they describe it
    (`objective_of`).

    Args:
        model, reward_funcs, args: as in TRL; every further argument too.
        objective: a preset's name (`"gspo"`, `"grpo+tis"`), an `Objective`, or `None` for the one that `args`
            describes.
        edits: dotted changes of a preset, `{"trust.high": 0.28}`.

    Raises:
        ValueError: keys of `args` that contradict the objective, something the objective needs and TRL cannot give, a
            checkpoint of another objective.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        *arguments: Any,
        objective: str | Objective | None = None,
        edits: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        if args is None:
            model_id = model if isinstance(model, str) else get_config_model_id(model.config)
            args = GRPOConfig(output_dir=f"{model_id.split('/')[-1]}-GRPO")
        self.objective = _resolved(objective, edits, args)
        self._keys_decide, self._passes = objective is None, passes(args)
        problems = [] if objective is None else list(contradictions(args, self.objective))
        problems += refusals(self.objective, args, settings.get("rollout_func") is not None)
        if problems:
            raise ValueError("; ".join(problems))
        args = copy.copy(args)
        # TRL builds and scores its reference when `beta` is not 0. When it corrects, it computes old log-probs in
        # addition to those of vLLM.
        beta = self.objective.divergence.beta
        args.beta = (beta.at(0, beta.init()) or 1.0) if self.objective.needs_reference else 0.0
        args.vllm_importance_sampling_correction = self._reads_behaviour
        sentences = [
            *remarks(self.objective, args),
            *doubts(self.objective, passes(args) // args.gradient_accumulation_steps),
        ]
        if not self.objective.needs_reference:
            args.sync_ref_model = False
        super().__init__(model, reward_funcs, args, *arguments, **settings)
        if self.accelerator.is_main_process:
            for sentence in sentences:
                warnings.warn(sentence, stacklevel=2)
        self.objective_state: ObjectiveState = self.objective.init()
        self._sampled: dict[str, Sampled] = {}
        self._window: Window | None = None
        self._micro_batches_taken = 0
        self._parts: list[Mapping[str, Statistic]] = []
        if "score_norm" in self.objective.requires:
            policy: Any = self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model
            add_fused_lm_head(
                policy,
                temperature=self.temperature,
                cast_lm_head_to_fp32=args.cast_lm_head_to_fp32,
                outputs=("log_probs", "entropy", "log_sum_sq_probs"),
            )

    @property
    def _reads_behaviour(self) -> bool:
        objective = self.objective
        pieces = (objective.trust, *objective.credit.links())
        return objective.correction.kind != "none" or any(
            "behaviour_log_prob" in piece.reads | piece.uses for piece in pieces
        )

    @property
    def _mode(self) -> str:
        policy: Any = self.model
        return "train" if policy.training else "eval"

    def train(self, *arguments: Any, **settings: Any) -> Any:
        """Trains as TRL does, from the first step on: with the objective's first state (a checkpoint brings its own),
        at the beginning of a generation.
        """
        self.objective_state = self.objective.init()
        self._window, self._buffered_inputs, self._step = None, None, 0
        self._micro_batches_taken, self._parts = 0, []
        return super().train(*arguments, **settings)

    # Rollouts

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], Any, dict[str, Any]]:
        """Encodes prompts as the domains of this package do. TRL encodes prompts with pictures or with tools of
        environments.
        """
        is_chat, tokenizer = not isinstance(prompts[0], str), self.processing_class
        if self._is_vlm or self.environment_factories is not None:
            chats = [without_nulls(prompt) for prompt in prompts] if is_chat else []
            cleaned = [[{"content": "", **message} for message in chat] for chat in chats]
            return super()._tokenize_prompts(cleaned or prompts)
        template_arguments: Any = self.chat_template_kwargs
        settings = {"tools": self.tools or None, "chat_template": self.chat_template, **template_arguments}
        texts = [render_chat(tokenizer, prompt, settings) for prompt in prompts] if is_chat else prompts
        return encode_prompts(tokenizer, texts, rendered=is_chat), None, {}

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        completions = self._with_special_tags(completions, completion_ids_list)
        self._rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        return self._rewards

    def _with_special_tags(self, completions: Sequence[Any], ids: list[list[int]]) -> list[Any]:
        """Returns completions with their special tags. TRL removes the tags when it decodes."""
        cut = self._tokenizer.batch_decode(ids, skip_special_tokens=True)
        texts = written_texts(self._tokenizer, ids, end_ids(self.accelerator.unwrap_model(self.model), self._tokenizer))
        written: list[Any] = []
        for completion, decoded, text in zip(completions, cut, texts, strict=True):
            if completion == decoded:
                written.append(text)
            elif completion == [{"role": "assistant", "content": decoded}]:
                written.append([{"role": "assistant", "content": text}])
            else:
                written.append(completion)
        return written

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        mode, mask = self._mode, decision_mask(output)
        recorded = self._reads_behaviour and "sampling_per_token_logps" in output
        if "old_per_token_logps" not in output and (recorded or self.objective.divergence.place == "reward"):
            output["old_per_token_logps"] = self._old_log_prob(output)
        old = output.get("old_per_token_logps")
        behaviour = behaviour_log_prob(output, old) if recorded and old is not None else None
        group_size = self.num_generations if mode == "train" else self.num_generations_eval
        assert group_size is not None
        rollouts = gathered_rollouts(
            output,
            old,
            behaviour,
            self._rewards,
            self.reward_func_names,
            self.reward_weights.tolist(),
            group_size,
            self._gather,
        )
        full_batch = self.objective.prepare(rollouts, self.objective_state)
        batch = local_members(full_batch, self.accelerator.process_index * len(mask), mask.shape)
        self._sampled[mode] = Sampled(batch, fresh=old is None)
        output["advantages"] = batch.advantage.squeeze(1).to(output["advantages"].dtype)
        output[_ROW] = torch.arange(len(mask), device=mask.device)
        logged_advantages = self._logs["advantages"]
        for _ in range(min(len(full_batch), len(logged_advantages))):
            logged_advantages.pop()
        logged_advantages.extend(full_batch.advantage.squeeze(1).tolist())
        for name, value in finish(full_batch.statistics).items():
            if name not in _LOGGED_BY_TRL and not name.startswith(("rewards/", "completions/")):
                self._metrics[mode][name].append(value)
        return output

    def _old_log_prob(self, output: Mapping[str, Any]) -> Tensor:
        """Computes the log-probs of the policy that acts, where TRL did not keep them."""
        size = self.args.per_device_train_batch_size if self._mode == "train" else self.args.per_device_eval_batch_size
        with torch.no_grad():
            return self._forward(self.model, output, size)[0]

    # The loss

    def _compute_loss(self, model: Any, inputs: Mapping[str, Any]) -> Tensor:
        mode = self._mode
        window = self._eval_window(inputs) if mode == "eval" else self._train_window(inputs)
        scored, router = self._score(model, inputs)
        # Processes average their gradients and their reported losses, but our shares have to be summed.
        loss = window.loss(scored) * self.accelerator.num_processes
        if router is not None:
            loss = loss + self.router_aux_loss_coef * router * window.share / len(window.rows)
            self._metrics[mode]["aux_loss"].append(float(self._sum(router.detach()) / self.accelerator.num_processes))
        if window.full:
            metrics = window.metrics(self._sum)
            if mode == "train":
                self._end_part(window, metrics)
            for name, value in (metrics | self._entropy_metrics(metrics, window, mode)).items():
                if not name.startswith(_NOT_LOGGED):
                    self._metrics[mode][name].append(value)
        return loss

    def _end_part(self, window: Window, metrics: Mapping[str, float]) -> None:
        """Closes the part of an optimiser step that is in one generation; after the last one the objective observes
        the step.
        """
        self._window = None
        self._micro_batches_taken += len(window.rows)
        self._parts += window.statistics
        if self._micro_batches_taken < self.current_gradient_accumulation_steps:
            return
        if window.share < 1:
            metrics = finish(reduce_statistics(add(self._parts), self._sum))
        self.objective_state = self.objective.observe(self.objective_state, metrics)
        self._micro_batches_taken, self._parts = 0, []
        if self._keys_decide and self.objective_state.entropy is not None:
            # TRL's callbacks and scripts read the adaptive coefficient here.
            self.entropy_coef = abs(self.objective_state.entropy)

    def _entropy_metrics(self, metrics: Mapping[str, float], window: Window, mode: str) -> dict[str, float]:
        """Returns the metrics that TRL logs for an entropy bonus: the loss without the bonus, and the coefficient."""
        if not self.objective.entropy.may_be_positive():
            return {}
        policy_loss = window.plan.policy_weight * metrics.get("loss_pg", 0.0) + metrics.get("loss_kl", 0.0)
        coefficient = self.objective_state.entropy
        logged = {"policy_loss": policy_loss}
        if mode == "train":
            constant = self.objective.entropy.at(self.objective_state.step) if coefficient is None else coefficient
            logged["entropy_coef"] = abs(constant)
        return logged

    def _train_window(self, inputs: Mapping[str, Any]) -> Window:
        if self._window is None:
            buffered = self._buffered_inputs
            assert buffered is not None
            # The optimiser step reaches into the next generation, which does not exist yet. That part comes later.
            left_in_generation = self._passes - self._step % self._passes
            left_in_step = self.current_gradient_accumulation_steps - self._micro_batches_taken
            size = min(left_in_generation, left_in_step)
            micro_batches = [buffered[(self._step + place) % len(buffered)] for place in range(size)]
            sampled = self._sampled["train"]
            self._window = Window.open(
                self.objective,
                sampled.batch,
                [micro_batch[_ROW] for micro_batch in micro_batches],
                sampled.fresh,
                self.objective_state,
                self._sum,
                lambda place: self._score(self.model, micro_batches[place])[0],
                share=size / self.current_gradient_accumulation_steps,
                mean_entropy=self._keys_decide,
            )
        return self._window

    def _eval_window(self, inputs: Mapping[str, Any]) -> Window:
        """Opens the window of an evaluation batch, which is one micro-batch and takes no step."""
        sampled = self._sampled["eval"]
        return Window.open(
            self.objective,
            sampled.batch,
            [inputs[_ROW]],
            sampled.fresh,
            self.objective_state,
            self._sum,
            lambda place: self._score(self.model, inputs)[0],
            mean_entropy=self._keys_decide,
        )

    def _sum(self, tensor: Tensor) -> Tensor:
        """Sums a tensor over processes."""
        total = self.accelerator.reduce(tensor, reduction="sum")
        assert isinstance(total, Tensor)
        return total

    def _gather(self, tensor: Tensor) -> Tensor:
        """Concatenates the rows of all processes, padded to the longest row."""
        gathered = self.accelerator.gather(self.accelerator.pad_across_processes(tensor, dim=1))
        assert isinstance(gathered, Tensor)
        return gathered

    def _score(self, model: Any, inputs: Mapping[str, Any]) -> tuple[Scored, Tensor | None]:
        """Computes the fields of `Scored` that TRL's fused head gives, and the router's loss of a mixture of
        experts.
        """
        requires = self.objective.requires
        recording = _Recording(model) if "score_norm" in requires else model
        log_prob, entropy, router = self._forward(recording, inputs)
        score_norm = None
        # In fp32 the difference below is exact to 1e-7, so a norm of almost 0 is exact to 3e-4.
        if isinstance(recording, _Recording):
            squares = torch.cat(recording.log_sum_sq_probs)[:, -log_prob.shape[1] :]
            score_norm = (1 - 2 * log_prob.detach().exp() + squares.detach().exp()).clamp(min=0).sqrt()
        assert entropy is not None
        return (
            Scored(log_prob, entropy=entropy if "entropy" in requires else entropy.detach(), score_norm=score_norm),
            router,
        )

    def _forward(
        self, model: Any, inputs: Mapping[str, Any], size: int | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Computes log-probs `[B, T]` and entropies `[B, T]` of the completions, and the router's loss of a mixture of
        experts, by TRL's own forward pass in chunks of `size` rows.
        """
        return self._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
            inputs["completion_ids"].size(1),
            batch_size=size,
            compute_entropy=True,
            compute_aux_loss=self.aux_loss_enabled,
            **{name: inputs.get(name) for name in _MODEL_INPUTS},
        )

    # Checkpoints

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            record = {"objective": _plain(self.objective), "state": self.objective_state.model_dump(mode="json")}
            (folder / STATE_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        path = Path(checkpoint) / STATE_FILE
        if not path.exists():
            self.objective_state = self.objective.init().model_copy(update={"step": self.state.global_step})
            step = self.state.global_step
            warnings.warn(
                f"{path} is missing: schedules go on at step {step}, an adaptive beta and running statistics begin"
                " anew",
                stacklevel=2,
            )
            return
        record = json.loads(path.read_text(encoding="utf-8"))
        changed = difference(record["objective"], _plain(self.objective))
        if changed:
            lines = ", ".join(f"{key} was {before!r} and is {after!r}" for key, (before, after) in changed.items())
            raise ValueError(
                f"{path} belongs to another objective: {lines}; resume with the same one, or start from the model in"
                f" {checkpoint}"
            )
        self.objective_state = validate(ObjectiveState, record["state"], source=str(path))


class _Recording:
    """Wraps a model for TRL's forward pass, and keeps the field `log_sum_sq_probs`, which that pass drops."""

    def __init__(self, model: Any) -> None:
        self.model, self.log_sum_sq_probs = model, []

    def __call__(self, **inputs: Any) -> Any:
        output = self.model(**inputs)
        self.log_sum_sq_probs.append(output.log_sum_sq_probs)
        return output


def _resolved(objective: str | Objective | None, edits: Mapping[str, Any] | None, args: GRPOConfig) -> Objective:
    if isinstance(objective, str):
        return Objective.preset(objective, **(edits or {}))
    if edits:
        raise ValueError(
            "edits change a preset by its name; write objective='grpo' beside them, or change the Objective itself"
        )
    return objective_of(args) if objective is None else objective


def _plain(objective: Objective) -> dict[str, Any]:
    return objective.model_dump(mode="json", exclude={"name"})


# The arguments of TRL's `GRPOTrainer` other than its `GRPOConfig`: those that have a meaning here, and what to write
# for the others.

_ELSEWHERE = {
    "model": "write it as the first argument of groupwise.train",
    "processing_class": "it belongs to the model: groupwise.train((model, processing_class), ...), or a folder",
    "reward_processing_classes": (
        "a reward model reads with the tokenizer of its folder: groupwise.reward.RewardModel(path=FOLDER)"
    ),
    "callbacks": "write functions of (step, metrics) as callbacks of groupwise.train",
    "optimizers": "write optimiser.kind = 'callable' with its path, and the schedule as optimiser.learning_rate",
    "quantization_config": "weights are trained as they are stored: leave it out, and write domain.model.dtype",
    "rollout_func": "write a conversation as domain.environment, or a server that samples as domain.engine",
    "environment_factory": "write the class's path as domain.environment = {kind = 'callable', path = ...}",
}
"""Argument -> what to write where it has no counterpart."""

_SAME = {"r", "lora_alpha", "lora_dropout", "target_modules"}
_SAYS_NOTHING = {"task_type", "peft_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision"}


def refused_arguments(others: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for every argument of the trainer that has no counterpart.

    Args:
        others: argument -> its value, those that `from_trl` does not name itself.

    Example:
        >>> list(refused_arguments({"callbacks": [print], "optimizers": (None, None)}))
        ['callbacks has no counterpart: write functions of (step, metrics) as callbacks of groupwise.train']
    """
    for name, value in others.items():
        if name not in _ELSEWHERE:
            known = "reward_funcs, train_dataset, eval_dataset, peft_config, tools"
            yield f"{name} is no argument of GRPOTrainer; those that are read here are {known}"
        elif not (value is None or (isinstance(value, Sequence) and all(part is None for part in value))):
            yield f"{name} has no counterpart: {_ELSEWHERE[name]}"


def adapter(peft_config: Any) -> dict[str, Any]:
    """Returns `domain.model.lora` of a `LoraConfig` of peft.

    Raises:
        ConfigError: it is another one, or has fields that change the adapter and have no counterpart.

    Example:
        >>> from peft import LoraConfig
        >>> adapter(LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))["target_modules"]
        ('q_proj', 'v_proj')
    """
    if not is_dataclass(peft_config) or type(peft_config).__name__ != "LoraConfig":
        raise ConfigError(
            f"from_trl: peft_config is of type {type(peft_config).__name__}; allowed: a peft.LoraConfig, which becomes"
            " domain.model.lora"
        )
    config: Any = peft_config
    changed = sorted(
        entry.name
        for entry in fields(config)
        if entry.name not in _SAME | _SAYS_NOTHING and not _is_default(entry, getattr(config, entry.name))
    )
    if changed:
        raise ConfigError(
            f"from_trl: peft_config.{changed[0]} = {getattr(config, changed[0])!r:.60} has no counterpart; leave it at"
            " its default (domain.model.lora has r, alpha, dropout and target_modules)"
        )
    targets = config.target_modules
    if targets is None or (isinstance(targets, str) and targets != "all-linear"):
        raise ConfigError(
            f"from_trl: peft_config.target_modules = {targets!r}; write the names of the layers, for example"
            ' ["q_proj", "v_proj"], or "all-linear"'
        )
    return {
        "r": config.r,
        "alpha": float(config.lora_alpha),
        "dropout": float(config.lora_dropout),
        "target_modules": targets if isinstance(targets, str) else tuple(sorted(targets)),
    }


def _is_default(entry: Any, value: Any) -> bool:
    if entry.default is not MISSING:
        return value == entry.default
    return entry.default_factory is MISSING or value == entry.default_factory()


def tool_turns(tools: Any, max_tool_calling_iterations: int | None) -> tuple[dict[str, Any], str]:
    """Returns the key for TRL's limit on rounds of tool calls, and a sentence on what differs; both empty without
    tools.

    Args:
        tools: as TRL takes them.
        max_tool_calling_iterations: of `GRPOConfig`; None there knows no limit.

    Example:
        >>> tool_turns([len], 3)
        ({'domain.environment.max_turns': 4}, '')
    """
    if not tools:
        return {}, ""
    if max_tool_calling_iterations is None:
        return {}, "a conversation with tools has at most 8 turns (domain.environment.max_turns); TRL's has no limit"
    # The policy's answer to the last tool results is a turn too.
    return {"domain.environment.max_turns": max_tool_calling_iterations + 1}, ""
