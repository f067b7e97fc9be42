"""The package keeps what training relies on, and its groups begin alike."""

import gymnasium
import numpy as np
import pytest

from groupwise import load_experiment
from groupwise.config import ConfigError
from groupwise.experiment.runner import open_domain
from groupwise.streams import Streams
from groupwise.testing import check_domain


def test_the_laws_of_a_domain_hold() -> None:
    check_domain(open_domain(load_experiment("control.toml")))


def test_the_members_of_a_group_begin_in_the_same_state() -> None:
    domain = open_domain(load_experiment("control.toml"))
    samples = domain.sample(
        domain.prompts([0, 1]), 3, streams=Streams(0), step=0, settings={}, requires=frozenset({"log_prob"})
    )
    first = samples.payload["observed"][:, 0].view(2, 3, -1)
    assert (first == first[:, :1]).all()
    assert (first[0] != first[1]).any()


class Valve(gymnasium.Env):
    """An action that is not symmetric around 0, and observations in double precision."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float64)

    def __init__(self, low: float = -1.0, high: float = 3.0) -> None:
        self.action_space = gymnasium.spaces.Box(low, high, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action):
        assert self.action_space.contains(np.float32(action))
        return np.zeros(2), -abs(float(action[0]) - 2), False, False, {}


gymnasium.register("Valve-v0", entry_point=Valve)
gymnasium.register("OpenValve-v0", entry_point=Valve, kwargs={"low": -np.inf, "high": np.inf})


def test_actions_lie_in_the_space_of_the_environment() -> None:
    domain = open_domain(load_experiment("control.toml", ["domain.environment=Valve-v0"]))
    (table,) = domain.tables(streams=Streams(0))
    assert dict(table.rows)["no action"] == -40 * 5 * 1.0  # the middle of [-1, 3] is 1, one away from 2


class Keys(gymnasium.Env):
    """One of three keys, numbered from 5; it shows which was pressed last, as whole numbers."""

    action_space = gymnasium.spaces.Discrete(3, start=5)

    def __init__(self, bits: bool = False) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (2, 2), np.uint8)
        if bits:
            self.observation_space = gymnasium.spaces.Dict({"key": gymnasium.spaces.Discrete(8)})
        self._bits = bits

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(0), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self._seen(int(action)), float(action == 6), False, False, {}

    def _seen(self, key):
        return {"key": key} if self._bits else np.full((2, 2), 30 * key, np.uint8)


gymnasium.register("Keys-v0", entry_point=Keys)
gymnasium.register("KeysOfADict-v0", entry_point=Keys, kwargs={"bits": True})


@pytest.mark.parametrize(("environment", "num_observed"), [("Keys-v0", 4), ("KeysOfADict-v0", 8), ("CartPole-v1", 4)])
def test_choices_and_any_observations_are_taken(environment: str, num_observed: int) -> None:
    domain = open_domain(load_experiment("control.toml", [f"domain.environment={environment}"]))
    check_domain(domain)
    samples = domain.sample(
        domain.prompts([0]), 4, streams=Streams(0), step=0, settings={}, requires=frozenset({"log_prob"})
    )
    assert samples.payload["observed"].shape[2] == num_observed
    assert samples.payload["observed"].abs().max() <= 1.5
    assert samples.old_log_prob[samples.mask].max() < 0
    drawn = samples.payload["actions"][samples.mask]
    assert drawn.dtype.is_floating_point is False
    assert len(drawn.unique()) > 1


@pytest.mark.parametrize("environment", ["OpenValve-v0"])
def test_other_actions_are_refused(environment: str) -> None:
    with pytest.raises(ConfigError, match="needs Discrete, or a bounded Box of one dimension"):
        open_domain(load_experiment("control.toml", [f"domain.environment={environment}"]))
