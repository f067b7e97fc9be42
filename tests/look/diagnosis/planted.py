"""Short real trainings into which one fault was planted: by configuration, by a reward, or by a component. Nothing here
writes a row by hand.
"""

from __future__ import annotations

import copy
import itertools
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.experiment.tiny import TINY
from tests.training.toy import ToyDomain, ToyPolicy, job, recipe, supervised

from groupwise.domain.language.policy import LocalPolicy
from groupwise.domain.protocol import Evaluation
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run as run_experiment
from groupwise.objective.divergence import Penalty
from groupwise.objective.slot import AdmissionSlot, AdvantageSlot
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.track import TrackConfig
from groupwise.training.job import Recipe
from groupwise.training.run import launch, loop
from groupwise.training.step import state, step

QUIET = TrackConfig(console="none", rollouts_every=0)
WIDE: dict[str, Any] = {"prompts_per_step": 8, "group_size": 8}


@dataclass(frozen=True)
class Planted:
    """A fault and what else is true of the run it was planted in.

    Args:
        rule: that must speak.
        train: trains into a folder.
        beside: rules that may speak as well, since the fault has those consequences; notes are not counted.
    """

    rule: str
    train: Callable[[Path], None]
    beside: frozenset[str] = frozenset()


def noise(seed: int = 0, scale: float = 1.0) -> Callable[[int, Any], float]:
    """A reward that pays by chance."""
    chance = random.Random(seed)
    return lambda index, actions: scale * chance.random()


class Rewarded(ToyDomain):
    """The toy with several rewards, each a function of the share of right actions and of the share of action 0."""

    def __init__(
        self,
        pays: Mapping[str, Callable[[float, float], float]],
        weights: Mapping[str, float] | None = None,
        judge: str = "",
    ) -> None:
        super().__init__()
        self.pays, self.weights, self.judges = pays, weights or {}, frozenset({judge} if judge else ())

    def reward(self, samples: Any) -> RewardTable:
        actions, count = samples.payload["action"], samples.mask.sum(1)
        right = ((actions == self._target(samples.payload["index"])) & samples.mask).sum(1) / count
        zeros = ((actions == 0) & samples.mask).sum(1) / count
        pairs = list(zip(right.tolist(), zeros.tolist(), strict=True))
        return RewardTable(
            {name: [pays(*pair) for pair in pairs] for name, pays in self.pays.items()},
            self.weights,
            judges=self.judges,
        )


class HeldOut(ToyDomain):
    """Evaluated on prompts that it is not trained on; each prompt has an embedding of its own."""

    metric_names = ("held_out/reward",)

    def __init__(self) -> None:
        super().__init__()
        self.module = ToyPolicy(2 * self.num_prompts, self.num_decisions, 0.0)

    def evaluate(self, *, streams: Any) -> Evaluation:
        index = torch.arange(self.num_prompts, 2 * self.num_prompts)
        with torch.no_grad():
            probability = self.module(index).softmax(-1).gather(-1, self._target(index)[..., None])[..., 0]
        mask = self._mask(index)
        return Evaluation({"held_out/reward": float((probability * mask).sum() / mask.sum())}, [])


class HeldOutWithoutAMark(HeldOut):
    """Evaluated on prompts that lack what tells the policy to begin: they earn a tenth."""

    def evaluate(self, *, streams: Any) -> Evaluation:
        metrics = super().evaluate(streams=streams).metrics
        return Evaluation({name: value / 10 for name, value in metrics.items()}, [])


class EvaluatedOnce(HeldOut):
    """Keeps its first evaluation, and gives it again."""

    metric_names = ("held_out/reward", "held_out/sure")
    kept: Evaluation | None = None

    def evaluate(self, *, streams: Any) -> Evaluation:
        if self.kept is None:
            metrics = super().evaluate(streams=streams).metrics
            with torch.no_grad():
                sure = float(self.module(torch.arange(self.num_prompts)).softmax(-1).amax(-1).mean())
            self.kept = Evaluation({**metrics, "held_out/sure": sure}, [])
        return self.kept


class ComparedWithItself(ToyDomain):
    """Its old log-probs are those of the present pass: the live ones less what has changed since."""

    def __init__(self) -> None:
        super().__init__(recorded=False)

    def score(self, samples: Any, rows: Any, requires: frozenset[str]) -> Scored:
        scored = super().score(samples, rows, requires)
        moved = scored.log_prob.detach() - samples.old_log_prob[rows]
        return replace(scored, log_prob=torch.where(samples.mask[rows], scored.log_prob - moved, 0.0))


class PolicyInBfloat16(ToyPolicy):
    """Weights in bfloat16, probabilities in fp64."""

    def forward(self, prompt: Any) -> Any:
        return super().forward(prompt).double()


class InBfloat16(ToyDomain):
    """The toy with weights of eight bits."""

    def __init__(self) -> None:
        super().__init__()
        self.module = PolicyInBfloat16(self.num_prompts, self.num_decisions, 0.0).bfloat16()


class KeepsFlatGroups(AdmissionSlot):
    """The condition of informative groups turned round."""

    def __call__(self, rewards: Any) -> Any:
        return rewards.group_flat.all(dim=1)


class ReplacedReference(ToyDomain):
    """Its weights become others when it samples for the first time, after the reference was made of them."""

    def __init__(self) -> None:
        super().__init__(reward_of=noise())
        self.is_replaced = False

    def sample(self, *arguments: Any, **settings: Any) -> Any:
        if not self.is_replaced:
            self.is_replaced = True
            with torch.no_grad():
                self.module.out.bias += torch.tensor([2.0, 0.0, -2.0, 0.0])
        return super().sample(*arguments, **settings)


class MeanMinusReward(AdvantageSlot):
    """The difference taken the wrong way round."""

    def __call__(self, rewards: Any, running: Any) -> Any:
        return rewards.compared(rewards.mean - rewards.value), running


class NegativeDivergence(Penalty):
    """The estimate k3 with its sign turned."""

    def __call__(self, decisions: Any, reference_log_prob: Any, exact: Any) -> Any:
        difference = reference_log_prob - decisions.log_prob
        return difference + 1 - difference.exp()


class Overflowing(ToyDomain):
    """A layer whose gradient overflows."""

    def __init__(self) -> None:
        super().__init__()
        self.module.out.weight.register_hook(lambda gradient: gradient * float("nan"))


class Rewritten(ToyDomain):
    """Writes a hundredth of the weights that it began with over the live ones, whenever it samples."""

    def __init__(self) -> None:
        super().__init__()
        self.first = copy.deepcopy(self.module.state_dict())

    def sample(self, *arguments: Any, **settings: Any) -> Any:
        with torch.no_grad():
            for name, parameter in self.module.named_parameters():
                parameter.lerp_(self.first[name], 0.01)
        return super().sample(*arguments, **settings)


class Stale(ToyDomain):
    """Samples from the weights that it began with."""

    def __init__(self) -> None:
        super().__init__()
        self.first_module = copy.deepcopy(self.module)

    def sample(self, *arguments: Any, **settings: Any) -> Any:
        live, self.module = self.module, self.first_module
        try:
            samples = super().sample(*arguments, **settings)
        finally:
            self.module = live
        with torch.no_grad():
            scored = self.score(samples, torch.arange(len(samples)), frozenset({"log_prob"}))
        return replace(samples, old_log_prob=scored.log_prob, behaviour_log_prob=samples.old_log_prob, recorded=None)


def toy(*recipes: Recipe, domain: Callable[[], ToyDomain] = ToyDomain) -> Callable[[Path], None]:
    """A run of the tiny exact policy."""

    def train(folder: Path) -> None:
        resolved = {
            "name": "toy",
            "seed": 0,
            "objective": recipes[-1].objective.model_dump(mode="json"),
            "train": recipes[-1].train.model_dump(mode="json"),
        }
        launch.train(replace(job(*recipes, domain=lambda device: domain(), track=QUIET), resolved=resolved), folder)

    return train


def grpo(method: str = "dapo", **train: Any) -> Recipe:
    """A stage of 30 steps."""
    return recipe("grpo", method, **{"num_steps": 30, **train})


def rising(start: float, end: float, num_steps: int) -> Any:
    """A schedule."""
    return {"kind": "linear", "start": start, "end": end, "num_steps": num_steps}


def experiment(*settings: str, source: str = TINY) -> Callable[[Path], None]:
    """A run of an experiment file with changes."""

    def train(folder: Path) -> None:
        file = folder.parent / "experiment.toml"
        file.write_text(source)
        run_experiment(
            load_experiment(file, [*settings, "track.rollouts_every=0", "checkpoint.every=1000"]),
            folder,
            controls=False,
        )

    return train


def after_the_first_three(folder: Path) -> None:
    """A run whose mask leaves out the first three tokens of every answer."""
    sample = LocalPolicy.sample

    def masked(self: Any, *arguments: Any, live: bool = False, **named: Any) -> Any:
        drawn = sample(self, *arguments, live=live, **named)
        return drawn if live else replace(drawn, mask=drawn.mask & (torch.arange(drawn.mask.shape[1]) > 2))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPolicy, "sample", masked)
        experiment("stages.warm_up.num_steps=80", "stages.grpo.num_steps=6")(folder)


def drawn_anew(folder: Path) -> None:
    """A run whose iterator over the prompts is made in every step."""
    draw = step.draw_prompts

    def anew(streams: Any, num_prompts: int, drawn: int, count: int) -> tuple[list[int], int]:
        return draw(streams, num_prompts, 0, count)[0], drawn + count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "draw_prompts", anew)
        toy(grpo(num_steps=10, rate=0.01, **WIDE), domain=lambda: ToyDomain(num_prompts=64))(folder)


def slow_rewards(folder: Path) -> None:
    """A run whose rewards take a minute, by a clock that they put forward."""
    minutes = 0

    class SlowReward(ToyDomain):
        def reward(self, samples: Any) -> RewardTable:
            nonlocal minutes
            minutes += 1
            return super().reward(samples)

    with pytest.MonkeyPatch.context() as patch:
        for module in (loop, state):
            patch.setattr(module, "perf_counter", lambda: time.perf_counter() + 60 * minutes)
        toy(grpo(num_steps=3), domain=SlowReward)(folder)


def by_chance(completions: Any, **columns: Any) -> list[float]:
    """A reward that pays by chance, drawn anew for each batch: none can be earned."""
    chance = random.Random(repr(completions))
    return [chance.random() for _ in completions]


def by_turn() -> Callable[[int, Any], float]:
    """A reward that adds to the action's how often it was asked, of each group of eight anew."""
    turns = itertools.count()
    return lambda index, actions: float(actions[0] == 1) + next(turns) % 8


def by_length(completions: Any, **columns: Any) -> list[float]:
    """A reward that pays for words."""
    return [float(len(completion.split())) for completion in completions]


CONSISTENCY = """\
method = "grpo"
divergence = { kind = "none" }
auxiliary = { consistency = 1e-3 }

[domain]
kind = "restoration"
model = { kind = "network", network = { kind = "residual", width = 4, depth = 1 } }
source = { kind = "digits", num_train = 32 }
degradation = { kind = "gaussian_noise", sigma = 0.3 }
policy = { kind = "pixels", sigma = 0.2 }
evaluation = { num_images = 2, num_columns = 0 }

[domain.rewards.chance]
kind = "callable"
path = "tests.look.diagnosis.planted:by_chance"

[train]
num_steps = 70
prompts_per_step = 2
group_size = 4

[optimiser]
learning_rate = { kind = "linear", start = 1e-5, end = 3e-2, num_steps = 70 }

[checkpoint]
every = 1000

[track]
console = "none"
"""

# The same at a rate that moves nothing, beside a reference: the drift of a policy that stands still is no creep.
STILL = CONSISTENCY.replace('divergence = { kind = "none" }\n', "").replace(
    '{ kind = "linear", start = 1e-5, end = 3e-2, num_steps = 70 }', "1e-6"
)

PLANTED = (
    Planted(
        "all_flat",
        toy(grpo(), domain=lambda: ToyDomain(reward_of=lambda index, actions: float(index % 2))),
        frozenset({"no_update"}),
    ),
    Planted(
        "reward_ignores_answer",
        toy(grpo(), domain=lambda: ToyDomain(reward_of=lambda index, actions: float(index))),
        frozenset({"all_flat", "no_update"}),
    ),
    Planted(
        "prompts_of_one_value",
        toy(
            grpo(rate=0.01, prompts_per_step=16),
            domain=lambda: ToyDomain(
                num_prompts=40, reward_of=lambda index, actions: 0.0 if index < 30 else float(actions[0] == 1)
            ),
        ),
    ),
    Planted(
        "stopped_early",
        experiment(
            "stages.warm_up.num_steps=80",
            "stages.grpo.num_steps=9",
            "stages.grpo.set.train.evaluate_every=2",
            "stages.grpo.set.train.early_stopping={patience=1,min_gain=1.0}",
        ),
    ),
    Planted(
        "prompts_truncated",
        experiment(
            "stages.warm_up.num_steps=80",
            "stages.grpo.num_steps=4",
            "domain.max_prompt_tokens=2",
            "domain.overlong=truncate",
        ),
        frozenset({"reward_constant", "all_flat", "no_update", "all_truncated"}),
    ),
    Planted(
        "held_out_unlike_training",
        toy(grpo(num_steps=30, rate=1e-4, **WIDE), domain=lambda: HeldOutWithoutAMark()),
    ),
    Planted(
        "average_lags",
        toy(
            grpo(num_steps=30, rate=0.05, weight_average={"decay": 0.9999, "warm_up": False}, **WIDE),
            domain=lambda: HeldOut(),
        ),
    ),
    Planted(
        "evaluation_repeats",
        toy(grpo(num_steps=40, rate=0.05, **WIDE), domain=lambda: EvaluatedOnce()),
        frozenset({"learns_by_heart"}),
    ),
    Planted(
        "prompts_never_earn",
        toy(
            grpo("grpo", num_steps=60, rate=0.1, **WIDE),
            domain=lambda: ToyDomain(
                num_prompts=16,
                num_decisions=1,
                reward_of=lambda index, actions: float(index % 2 and int(actions[0]) == index % 4),
            ),
        ),
        frozenset({"all_flat"}),
    ),
    Planted("prompts_come_back", drawn_anew),
    Planted("steps_round_away", toy(grpo(rate=1e-4, **WIDE), domain=lambda: InBfloat16())),
    Planted(
        "ratio_always_one",
        toy(grpo(updates_per_batch=4, rate=0.01, **WIDE), domain=lambda: ComparedWithItself()),
    ),
    Planted("rewards_are_slow", slow_rewards),
    Planted(
        "reference_elsewhere",
        toy(grpo("grpo", num_steps=25, rate=1e-3, **WIDE), domain=ReplacedReference),
    ),
    Planted(
        "divergence_negative",
        toy(
            grpo(
                "grpo",
                num_steps=30,
                rate=0.05,
                objective={
                    "divergence": {
                        "kind": "callable",
                        "path": "tests.look.diagnosis.planted:NegativeDivergence",
                        "settings": {"beta": 1.0},
                    }
                },
                **WIDE,
            )
        ),
        frozenset({"all_flat", "no_update", "entropy_collapse"}),
    ),
    Planted(
        "advantage_turned",
        toy(
            grpo(
                "grpo",
                rate=0.01,
                objective={
                    "advantage": {"kind": "callable", "path": "tests.look.diagnosis.planted:MeanMinusReward"},
                    "divergence.kind": "none",
                },
                **WIDE,
            )
        ),
        frozenset({"reward_falls", "reward_flat"}),
    ),
    Planted("decisions_left_out", after_the_first_three),
    Planted("learns_by_heart", toy(grpo(num_steps=60, rate=0.05, **WIDE), domain=lambda: HeldOut())),
    Planted(
        "weight_decay_too_high",
        experiment(
            "stages.warm_up.num_steps=80",
            "stages.warm_up.set.optimiser.learning_rate=1e-2",
            "stages.warm_up.set.optimiser.weight_decay=0.0",
            "stages.grpo.num_steps=25",
            "optimiser.weight_decay=100.0",
        ),
        frozenset({"policy_becomes_random", "reward_falls", "all_truncated", "learning_rate_too_high", "all_flat"}),
    ),
    Planted("weights_rewritten", toy(grpo(rate=0.01, **WIDE), domain=lambda: Rewritten())),
    # In fp64 as well, a step so small rounds to nothing.
    Planted("weights_unchanged", toy(grpo(rate=1e-30))),
    Planted("too_few_members", toy(grpo(rate=1e-4, prompts_per_step=1, group_size=2))),
    Planted(
        "admission_rejects",
        toy(
            grpo(
                "grpo",
                rate=1e-3,
                objective={"admission.kind": "positive_share", "admission.min_positive_ratio": 1.0},
            )
        ),
        frozenset({"no_update"}),
    ),
    Planted(
        "policy_becomes_random",
        toy(
            supervised(num_steps=60, rate=0.05),
            grpo("bnpo", rate=0.01, num_steps=60, **WIDE, objective={"trust.kind": "unbounded", "entropy": 3.0}),
        ),
        frozenset({"reward_falls", "reward_flat"}),
    ),
    Planted(
        "divergence_holds",
        toy(grpo("grpo", rate=1e-3, **WIDE, objective={"divergence.beta": 1e4})),
    ),
    Planted(
        "policy_term_drowned",
        toy(
            supervised(num_steps=60, rate=0.05),
            grpo("grpo", rate=1e-3, **WIDE, objective={"divergence.kind": "none", "auxiliary.supervised": 3e3}),
        ),
        frozenset({"reward_falls"}),
    ),
    Planted(
        "reward_constant",
        toy(grpo(), domain=lambda: ToyDomain(reward_of=lambda index, actions: 1.0)),
        frozenset({"no_update", "all_flat"}),
    ),
    Planted(
        "samples_alike",
        experiment(
            "stages.warm_up.num_steps=80",
            "stages.warm_up.set.optimiser.learning_rate=1e-2",
            "stages.grpo.num_steps=22",
            "domain.sampling.temperature=0.001",
        ),
        frozenset({"all_flat", "no_update", "reward_constant"}),
    ),
    Planted(
        "reward_follows_length",
        experiment(
            "domain.sampling.max_new_tokens=16",
            "stages.warm_up.num_steps=80",
            "stages.warm_up.set.optimiser.learning_rate=1e-2",
            "stages.grpo.num_steps=45",
            "optimiser.learning_rate=1e-3",
            'domain.rewards.correct={kind="callable",path="tests.look.diagnosis.planted:by_length",bounds=[0.0,16.0]}',
        ),
        frozenset({"all_truncated"}),
    ),
    Planted(
        "judge_disagrees",
        toy(
            grpo(num_steps=25, rate=0.002, **WIDE),
            domain=lambda: Rewarded(
                {"zeros": lambda right, zeros: zeros, "meant": lambda right, zeros: right / 2 - zeros}, judge="meant"
            ),
        ),
    ),
    Planted("no_update", toy(grpo(), domain=Overflowing), frozenset({"not_finite"})),
    Planted("not_finite", toy(grpo(num_steps=5), domain=Overflowing)),
    Planted(
        "all_truncated",
        experiment("domain.sampling.max_new_tokens=1", "stages.grpo.num_steps=22"),
        frozenset({"reward_constant", "all_flat", "no_update"}),
    ),
    Planted("ratio_not_one", toy(grpo(num_steps=10), domain=lambda: ToyDomain(dropout=0.2))),
    Planted("reward_flat", toy(grpo(num_steps=110, rate=0.01, **WIDE), domain=lambda: ToyDomain(reward_of=noise()))),
    Planted(
        "reward_falls",
        toy(grpo("bnpo", num_steps=80, **WIDE, objective={"trust.kind": "unbounded", "entropy": rising(0.0, 3.0, 60)})),
        frozenset({"reward_flat"}),
    ),
    Planted(
        "reward_dominates",
        toy(
            grpo(rate=0.01),
            domain=lambda: Rewarded(
                {"right": lambda right, zeros: right, "chance": lambda right, zeros: noises()}, {"chance": 50.0}
            ),
        ),
    ),
    Planted("reward_missing", toy(grpo(rate=0.01), domain=lambda: ToyDomain(reward_of=sometimes()))),
    Planted(
        "judge_falls",
        toy(
            supervised(num_steps=60, rate=0.05),
            grpo(num_steps=45, rate=0.02, **WIDE),
            domain=lambda: Rewarded(
                {"zeros": lambda right, zeros: zeros, "meant": lambda right, zeros: right}, judge="meant"
            ),
        ),
        frozenset({"judge_disagrees"}),
    ),
    Planted(
        "entropy_collapse",
        toy(grpo(num_steps=60, rate=0.2), domain=lambda: ToyDomain(reward_of=noise())),
        frozenset({"learning_rate_too_high", "reward_flat"}),
    ),
    Planted(
        "length_creep",
        experiment(
            "domain.sampling.max_new_tokens=16",
            "stages.warm_up.num_steps=80",
            "stages.warm_up.set.optimiser.learning_rate=1e-2",
            "stages.grpo.num_steps=65",
            "entropy=3.0",
            "optimiser.learning_rate=7e-4",
            'domain.rewards.correct={kind="callable",path="tests.look.diagnosis.planted:by_chance"}',
        ),
        frozenset({"reward_is_noise", "reward_flat"}),
    ),
    Planted(
        "reward_follows_place",
        toy(grpo(rate=0.01, **WIDE), domain=lambda: ToyDomain(reward_of=by_turn())),
        frozenset({"reward_flat", "reward_is_noise"}),
    ),
    Planted(
        "reward_is_noise",
        experiment(
            "stages.warm_up.num_steps=80",
            "stages.warm_up.set.optimiser.learning_rate=1e-2",
            "stages.grpo.num_steps=32",
            "domain.sampling.max_new_tokens=2",
            'domain.rewards.correct={kind="callable",path="tests.look.diagnosis.planted:by_chance"}',
        ),
        frozenset({"all_truncated"}),
    ),
    Planted(
        "kl_runaway",
        toy(
            grpo("grpo", num_steps=80, rate=rising(1e-5, 0.03, 80), objective={"divergence.beta": 1e-6}, **WIDE),
            domain=lambda: ToyDomain(reward_of=noise()),
        ),
        frozenset({"reward_flat"}),
    ),
    Planted("generator_drifts", toy(grpo("dapo+tis", rate=0.03, **WIDE), domain=Stale), frozenset({"reward_flat"})),
    Planted("clip_never_acts", toy(grpo(updates_per_batch=2, rate=1e-5))),
    Planted(
        "clip_mostly_acts",
        toy(grpo(updates_per_batch=4, objective={"trust.low": 1e-4, "trust.high": 1e-4}, **WIDE)),
        frozenset({"dead_negatives", "dead_positives"}),
    ),
    Planted(
        "clip_mostly_acts",
        toy(grpo("gspo", updates_per_batch=4, rate=0.01, **WIDE)),
        frozenset({"dead_negatives", "dead_positives"}),
    ),
    Planted(
        "dead_negatives",
        toy(
            grpo(objective={"compat": "verl_rl", "credit.temporal_decay.gamma": 0.5}),
            domain=lambda: ToyDomain(num_decisions=8),
        ),
    ),
    Planted(
        "dead_positives",
        toy(grpo(updates_per_batch=8, rate=0.005, objective={"trust.high": 1e-6, "trust.low": 0.9}, **WIDE)),
    ),
    Planted(
        "learning_rate_too_high",
        toy(grpo(rate=5.0, num_steps=40)),
        frozenset({"all_flat", "no_update", "entropy_collapse"}),
    ),
    Planted("learning_rate_too_low", toy(grpo(rate=1e-7, num_steps=80))),
    # The two held-out images earn far more than the trained ones, which says nothing of the sampler.
    Planted("learning_rate_too_low", experiment(source=STILL)),
    Planted("advantage_one_sided", toy(grpo("topr"))),
    Planted(
        "advantage_scale",
        toy(
            grpo("dr_grpo", objective={"divergence": {"kind": "k3", "beta": 0.04}}),
            domain=lambda: ToyDomain(reward_of=noise(scale=1e-3)),
        ),
    ),
    Planted(
        "policy_loss_grows",
        toy(
            grpo(num_steps=45, updates_per_batch=4, rate=rising(1e-3, 3.0, 60), **WIDE, objective={"entropy": 1.0}),
            domain=lambda: ToyDomain(reward_of=noise()),
        ),
        frozenset({"learning_rate_too_high"}),
    ),
    Planted("supervised_not_falling", toy(supervised(num_steps=70, rate=1e-9))),
    Planted("consistency_creep", experiment(source=CONSISTENCY)),
)

_CHANCE = random.Random(1)


def noises() -> float:
    """One draw."""
    return _CHANCE.random()


def sometimes() -> Callable[[int, Any], float | None]:
    """A reward that is missing four times in ten."""
    chance = random.Random(0)
    return lambda index, actions: None if chance.random() < 0.4 else chance.random()
