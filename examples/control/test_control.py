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


@pytest.mark.parametrize("environment", ["OpenValve-v0", "CartPole-v1"])
def test_other_actions_are_refused(environment: str) -> None:
    with pytest.raises(ConfigError, match="a bounded Box"):
        open_domain(load_experiment("control.toml", [f"domain.environment={environment}"]))
