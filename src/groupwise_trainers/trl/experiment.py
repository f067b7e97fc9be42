"""TRL's `GRPOConfig` as the arguments of `groupwise.train`, with what differs: `groupwise.from_trl`."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from trl.trainer.grpo_config import GRPOConfig

from groupwise.config import ConfigError, validate
from groupwise.experiment.arguments import ATTRIBUTES, numbered
from groupwise.experiment.object_record import import_path_of
from groupwise.objective import Objective
from groupwise.reward import CallableReward
from groupwise_trainers.trl.keys import ignored_fields, objective_of, refused_fields
from groupwise_trainers.trl.trainer import adapter, refused_arguments, tool_turns


@final
@dataclass(frozen=True)
class FromTRL(Mapping[str, Any]):
    """The arguments of `groupwise.train` that correspond to a `GRPOConfig`; `str` lists them and the differences.

    Args:
        arguments: keyword arguments of `groupwise.train`: the objective, dotted keys of the experiment, and rewards and
            data where `from_trl` was given them.
        mapped: field of TRL -> our key with its value.
        differs: sentences on what is not the same here.
        ignored: field of TRL -> why it changes nothing here, for fields that are not at their default.
    """

    arguments: Mapping[str, Any]
    mapped: Mapping[str, str] = field(default_factory=dict)
    differs: Sequence[str] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arguments)

    def __len__(self) -> int:
        return len(self.arguments)

    def __str__(self) -> str:
        parts = {
            "mapped": [f"{name} -> {text}" for name, text in self.mapped.items()],
            "differs": list(self.differs),
            "ignored": [f"{name}: {text}" for name, text in self.ignored.items()],
        }
        return "\n".join(f"{title}\n" + "\n".join(f"  {line}" for line in lines) for title, lines in parts.items())


def from_trl(
    args: GRPOConfig,
    *,
    reward_funcs: Any = None,
    train_dataset: Any = None,
    eval_dataset: Any = None,
    peft_config: Any = None,
    tools: Any = None,
    **others: Any,
) -> FromTRL:
    """Translates the arguments of TRL's `GRPOTrainer` into those of `groupwise.train`.

    A step here is a generation there: `prompts_per_step = generation_batch_size / num_generations`, cut into
    `minibatches = steps_per_generation / gradient_accumulation_steps` optimiser steps, `num_iterations` times.

    Args:
        args: TRL's arguments, its defaults included.
        reward_funcs: as TRL takes them; `reward_weights` is theirs.
        train_dataset, eval_dataset: as TRL takes them; `num_train_epochs` is counted in the rows of the first.
        peft_config: a `LoraConfig` of peft, which becomes `domain.model.lora`.
        tools: functions that the policy calls, as TRL takes them.
        others: any other argument of TRL's trainer: refused, with what to write, unless it is empty.

    Returns:
        a mapping for `groupwise.train(model, **mapping)`, with the list of what differs.

    Raises:
        ConfigError: fields and arguments that change training and have no counterpart, all at once, each with what to
            write.

    Example:
        >>> args = GRPOConfig(output_dir="unused", use_cpu=True, bf16=False, max_steps=100, num_generations=4)
        >>> translated = from_trl(args)
        >>> translated["train.num_steps"], translated["train.prompts_per_step"], translated["train.group_size"]
        (100, 2, 4)
        >>> translated["objective"].aggregation.kind, translated["optimiser.learning_rate"]["start"]
        ('token_mean', 1e-06)
    """
    if not isinstance(args, GRPOConfig):
        raise ConfigError(f"from_trl: an object of type {type(args).__qualname__} was given; give a trl.GRPOConfig")
    problems = [*refused_fields(args, has_tools=bool(tools)), *refused_arguments(others), *_uneven(args)]
    try:
        objective = objective_of(args)
    except ValueError as error:
        raise ConfigError("from_trl: " + "; ".join([*problems, str(error)])) from None
    if problems:
        raise ConfigError("from_trl: " + "; ".join(problems))
    lengths = _lengths(args, train_dataset)
    table = {**_sampling(args), **_training(args, lengths), **_following(args, lengths)}
    if objective.needs_reference and args.sync_ref_model:
        alpha, steps = args.ref_model_mixup_alpha, lengths.in_steps(args.ref_model_sync_steps)
        table["sync_ref_model, ref_model_sync_steps, ref_model_mixup_alpha"] = {
            "reference": {"kind": "periodic", "sync_steps": steps, "alpha": alpha}
        }
    if peft_config is not None:
        table["peft_config"] = {"domain.model.lora": adapter(peft_config)}
    limit, difference = tool_turns(tools, args.max_tool_calling_iterations)
    if limit:
        table["max_tool_calling_iterations"] = limit
    arguments: dict[str, Any] = {"objective": objective}
    for keys in table.values():
        arguments |= keys
    is_stream = train_dataset is not None and lengths.epoch is None
    if is_stream:
        num_train = lengths.num_steps * _prompts_per_step(args)
        held_out = {} if eval_dataset is not None else {"domain.data.num_held_out": min(256, max(num_train // 9, 1))}
        table["train_dataset"] = {"domain.data.num_train": num_train, **held_out}
        arguments |= table["train_dataset"]
    rewards = _weighted(reward_funcs, args.reward_weights)
    objects = {"rewards": rewards, "data": train_dataset, "eval_data": eval_dataset, "tools": tools or None}
    arguments |= {name: value for name, value in objects.items() if value is not None}
    mapped = {
        "loss_type, scale_rewards, beta, epsilon, ...": f"objective ({_slots(objective)})",
        **{names: ", ".join(f"{key} = {value!r}" for key, value in keys.items()) for names, keys in table.items()},
    }
    differs = [*_differences(args, objective, lengths, eval_dataset, is_stream), *filter(None, [difference])]
    return FromTRL(arguments, mapped, tuple(differs), ignored_fields(args))


@final
@dataclass(frozen=True)
class _Lengths:
    """The lengths of a run: optimiser steps per generation, and steps of Groupwise (generations) per run and epoch."""

    updates: int
    num_steps: int
    optimiser_steps: int
    epoch: int | None

    def in_steps(self, optimiser_steps: float) -> int:
        """Converts optimiser steps, or a share of them below 1 as transformers reads it, into steps of ours."""
        if optimiser_steps < 1:
            optimiser_steps = math.ceil(self.optimiser_steps * optimiser_steps)
        return max(1, math.ceil(optimiser_steps / self.updates))


def _lengths(args: GRPOConfig, train_dataset: Any) -> _Lengths:
    updates = _minibatches(args) * args.num_iterations
    num_rows = len(train_dataset) if hasattr(train_dataset, "__len__") else None
    prompts = _prompts_per_step(args)
    if num_rows is not None and num_rows < prompts:
        raise ConfigError(
            f"from_trl: train_dataset has {num_rows} rows and a generation takes {prompts} prompts"
            f" (generation_batch_size {args.generation_batch_size} / num_generations {args.num_generations}), so TRL"
            " would train on none; write a smaller generation_batch_size"
        )
    epoch = None if num_rows is None else num_rows // prompts
    if args.max_steps > 0:
        optimiser_steps = args.max_steps
    elif epoch is None:
        raise ConfigError(
            f"from_trl: num_train_epochs = {args.num_train_epochs} is counted in rows, and their number is not known;"
            " write from_trl(args, train_dataset=DATASET), or max_steps in GRPOConfig"
        )
    else:
        optimiser_steps = math.ceil(args.num_train_epochs * epoch * updates)
    return _Lengths(updates, math.ceil(optimiser_steps / updates), optimiser_steps, epoch)


def _minibatches(args: GRPOConfig) -> int:
    return int(args.steps_per_generation or 1) // args.gradient_accumulation_steps


def _prompts_per_step(args: GRPOConfig) -> int:
    return int(args.generation_batch_size or 1) // int(args.num_generations or 1)


def _uneven(args: GRPOConfig) -> Iterator[str]:
    """Yields a sentence for every batch that TRL divides in a way that is impossible here."""
    if int(args.steps_per_generation or 1) % args.gradient_accumulation_steps:
        yield (
            f"gradient_accumulation_steps = {args.gradient_accumulation_steps} does not divide steps_per_generation ="
            f" {args.steps_per_generation}, so an optimiser step would reach over two generations; write a divisor"
        )
    elif _minibatches(args) > _prompts_per_step(args):
        yield (
            f"steps_per_generation / gradient_accumulation_steps = {_minibatches(args)} optimiser steps cut a"
            f" generation of {_prompts_per_step(args)} prompts inside its groups, and a minibatch holds whole groups;"
            f" write gradient_accumulation_steps = {args.steps_per_generation}, or more prompts a generation"
        )


def _sampling(args: GRPOConfig) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {
        "generation_batch_size, num_generations": {
            "train.prompts_per_step": _prompts_per_step(args),
            "train.group_size": args.num_generations,
        },
        "max_completion_length": {"domain.sampling.max_new_tokens": args.max_completion_length},
        "temperature, top_p, top_k": {
            "domain.sampling.temperature": float(args.temperature),
            "domain.sampling.top_p": float(args.top_p),
            "domain.sampling.top_k": int(args.top_k or 0),
        },
        "num_generations_eval": {
            "domain.evaluation.num_samples": int(args.num_generations_eval or args.num_generations or 1)
        },
        "disable_dropout": {"domain.model.dropout": "off" if args.disable_dropout else "kept"},
    }
    if args.chat_template_kwargs:
        table["chat_template_kwargs"] = {"domain.chat.template_arguments": args.chat_template_kwargs}
    return table


def _training(args: GRPOConfig, lengths: _Lengths) -> dict[str, dict[str, Any]]:
    return {
        "max_steps, num_train_epochs": {"train.num_steps": lengths.num_steps},
        "num_iterations": {"train.updates_per_batch": args.num_iterations},
        "steps_per_generation, gradient_accumulation_steps": {"train.minibatches": _minibatches(args)},
        "per_device_train_batch_size": {"train.micro_batch_members": args.per_device_train_batch_size},
        "learning_rate, lr_scheduler_type, warmup_steps": {
            "optimiser.learning_rate": _learning_rate(args, lengths),
            "optimiser.warm_up_steps": 0,
        },
        "weight_decay, adam_beta1, adam_beta2, adam_epsilon": {
            "optimiser.weight_decay": float(args.weight_decay),
            "optimiser.beta1": float(args.adam_beta1),
            "optimiser.beta2": float(args.adam_beta2),
            "optimiser.eps": float(args.adam_epsilon),
        },
        "max_grad_norm": {"train.max_grad_norm": float(args.max_grad_norm or 0.0) or None},
        "bf16": {"train.autocast": "bfloat16" if args.bf16 else "none"},
        "activation_checkpointing": {"train.gradient_checkpointing": bool(args.activation_checkpointing)},
        "use_cpu": {"train.device": "cpu" if args.use_cpu else "auto"},
        "full_determinism": {"train.deterministic": bool(args.full_determinism)},
        "seed": {"seed": args.seed},
    }


def _learning_rate(args: GRPOConfig, lengths: _Lengths) -> float | dict[str, Any]:
    """Returns the schedule that gives TRL's learning rates. transformers ignores `warmup_steps` in its schedule
    `constant`.
    """
    rate, kind = float(args.learning_rate), _text(args.lr_scheduler_type)
    warm_up = 0 if kind == "constant" else args.get_warmup_steps(lengths.optimiser_steps)
    falls = kind in ("linear", "cosine")
    if warm_up or (falls and lengths.updates > 1):
        return {
            "kind": "warm_up",
            "peak": rate,
            "warm_up_updates": warm_up,
            "num_updates": max(lengths.optimiser_steps, 1),
            "fall": kind if falls else "none",
            "updates_per_step": lengths.updates,
        }
    return {"kind": kind, "start": rate, "end": 0.0, "num_steps": lengths.num_steps} if falls else rate


def _following(args: GRPOConfig, lengths: _Lengths) -> dict[str, dict[str, Any]]:
    """Returns the settings for evaluating, saving and tracking the run."""
    evaluations = {"no": 0, "steps": lengths.in_steps(args.eval_steps or args.logging_steps), "epoch": lengths.epoch}
    saves = {"steps": lengths.in_steps(args.save_steps), "epoch": lengths.epoch}
    # `GRPOConfig` makes a list of it.
    reports: Any = args.report_to or []
    table: dict[str, dict[str, Any]] = {
        "eval_strategy, eval_steps": {"train.evaluate_every": evaluations.get(_text(args.eval_strategy), 0) or 0},
        "save_strategy, save_steps": {
            "checkpoint.every": saves.get(_text(args.save_strategy)) or max(lengths.num_steps, 1)
        },
        "load_best_model_at_end": {"checkpoint.keep_best": bool(args.load_best_model_at_end)},
    }
    if args.save_total_limit:
        table["save_total_limit"] = {"checkpoint.keep_last": args.save_total_limit}
    if "tensorboard" in reports:
        table["report_to"] = {"track.tensorboard": True}
    if "wandb" in reports:
        table["report_to (wandb)"] = {"track.wandb": {"project": args.project, "mode": "online"}}
    return table


def _weighted(reward_funcs: Any, weights: Sequence[float] | None) -> Any:
    """Returns the rewards with the weights of `reward_weights` as their attributes, where those are not all 1."""
    if weights is None or (reward_funcs is None and all(weight == 1 for weight in weights)):
        return reward_funcs
    if reward_funcs is None:
        raise ConfigError(
            f"from_trl: reward_weights = {list(weights)} belong to reward functions, which were not given; write"
            " from_trl(args, reward_funcs=[...])"
        )
    functions = reward_funcs if isinstance(reward_funcs, Sequence) else [reward_funcs]
    if len(functions) != len(weights):
        raise ConfigError(
            f"from_trl: reward_weights has {len(weights)} numbers for {len(functions)} reward functions; write one for"
            " every function"
        )
    if all(weight == 1 for weight in weights):
        return reward_funcs
    weighted: dict[str, Any] = {}
    for (name, function), weight in zip(numbered(functions), weights, strict=True):
        if not callable(function):
            raise ConfigError(
                f"from_trl: reward_weights beside a reward of type {type(function).__qualname__}; write it as a table"
                ' with its weight: rewards={"quality": groupwise.reward.RewardModel(path=..., weight=0.5)}'
            )
        weighted[name] = _with_weight(function, float(weight))
    return weighted


def _with_weight(function: Any, weight: float) -> Any:
    """Returns a reward with a weight: by its import path where it has one, which is all that a resume needs."""
    attributes = {name: getattr(function, name) for name in ATTRIBUTES if hasattr(function, name)}
    if path := import_path_of(function):
        return validate(CallableReward, {**attributes, "path": path, "weight": weight}, f"from_trl: {path}")
    copied: Any = functools.partial(function)
    vars(copied).update({**attributes, "__name__": getattr(function, "__name__", "reward"), "weight": weight})
    return copied


def _differences(
    args: GRPOConfig, objective: Objective, lengths: _Lengths, eval_dataset: Any, is_stream: bool
) -> Iterator[str]:
    """Yields a sentence for everything that is computed differently here than in TRL."""
    if objective.advantage.kind != "centred":
        yield "advantages are divided by max(std, 1e-6), in TRL by std + 1e-4; a flat group has advantage 0 in both"
    if args.loss_type == "bnpo":
        yield "bnpo counts the tokens of an optimiser step, TRL those of a micro-batch"
    if lengths.updates > 1 and args.loss_type in ("dapo", "cispo", "vespo"):
        yield f"{args.loss_type} divides by the tokens of an optimiser step, TRL by those of the generation"
    if args.entropy_coef or args.use_adaptive_entropy:
        yield "the entropy bonus has the weights of the aggregation, TRL's is the mean over each micro-batch"
    if _minibatches(args) > 1:
        yield "a minibatch holds whole groups, TRL deals single members to it"
    if lengths.num_steps * lengths.updates != lengths.optimiser_steps:
        yield (
            f"a run ends with a whole generation: {lengths.num_steps * lengths.updates} optimiser steps,"
            f" {lengths.optimiser_steps} in TRL"
        )
    if lengths.updates > 1:
        yield (
            f"the learning rate stands still for the {lengths.updates} optimiser steps of a generation, at the mean of"
            " TRL's rates"
        )
    yield "an optimiser step whose gradient is 0 (all groups flat) is left out; TRL's moves on by AdamW's momentum"
    if args.load_best_model_at_end:
        yield (
            "the best step is that of the highest train.metric, whatever metric_for_best_model says, and model/ holds"
            " the last weights: groupwise export RUN --which best writes those of the best step"
        )
    if args.weight_decay:
        yield "weight decay leaves vectors (biases, norms) alone; TRL's leaves biases and norm layers alone"
    yield "prompts are drawn and members sampled by our own streams, so single samples are others than TRL's"
    yield "an evaluation is made before the first step and after the last one; greedy answers are measured as well"
    if is_stream:
        yield "of a stream as many rows are read as the steps take, each once; a shorter one is an error"
    if eval_dataset is None:
        yield "without eval_dataset a tenth of the rows, at most 256, is held out; TRL trains on all"
    if not args.save_total_limit:
        yield "the newest two checkpoints stay (checkpoint.keep_last); TRL keeps all"
    if _text(args.save_strategy) == "no":
        yield "the last step is saved as a checkpoint all the same"


def _slots(objective: Objective) -> str:
    names = ("advantage", "ratio", "trust", "aggregation", "divergence")
    return ", ".join(f"{name} {getattr(objective, name).kind}" for name in names)


def _text(value: Any) -> str:
    """Returns the text of one of transformers' enumerations."""
    return str(getattr(value, "value", value))
