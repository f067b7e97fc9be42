"""The package keeps what training relies on, and its groups begin alike."""

from groupwise import load_experiment
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
