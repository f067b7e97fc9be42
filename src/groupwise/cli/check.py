"""`groupwise check`: everything an experiment needs is read and one real group is scored; nothing is trained."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.arguments import ExperimentOrPrompts, Model, Overrides, Prompts, Rewards, RunCode, Seed

if TYPE_CHECKING:
    from groupwise.domain.base import Domain
    from groupwise.experiment import Experiment
    from groupwise.experiment.trial import OneGroup
    from groupwise.training.job import Domains, Job


def check(
    experiment: ExperimentOrPrompts = "prompts",
    overrides: Overrides = None,
    model: Model = None,
    prompts: Prompts = None,
    rewards: Rewards = None,
    seed: Seed = None,
    prompt: Annotated[int, typer.Option(help="Which training prompt, counted from 0.")] = 0,
    run_code: RunCode = False,
) -> None:
    """Read everything, sample and score one group, and show it. Trains nothing."""
    from groupwise.cli.arguments import load

    loaded = load(experiment, overrides, model=model, prompts=prompts, rewards=rewards, seed=seed, run_code=run_code)
    import torch

    from groupwise.experiment.runner import check_start, job_of, open_domain
    from groupwise.training.job import Domains
    from groupwise.training.run.preflight import check_configuration, check_memory, device_of, try_pieces

    check_start(loaded)
    torch.set_num_threads(loaded.train.num_threads)
    span = next((stage for stage in loaded.spans if stage.samples), loaded.spans[-1])
    job = job_of(loaded)
    check_configuration(job)
    try_pieces(job)
    device = device_of(job.recipes[0])
    for recipe in job.recipes:
        check_memory(recipe, device)
    domains = Domains(open_domain(loaded))
    with closing(domains):
        _read_and_score(loaded, job, span, domains, prompt)


def _read_and_score(loaded: Experiment, job: Job, span: Experiment, domains: Domains, prompt: int) -> None:
    """Prints the sizes of the experiment's domain, and one scored group."""
    from groupwise.cli.output import print_text
    from groupwise.domain.callable import is_users
    from groupwise.domain.returned import naming_failed_method
    from groupwise.experiment.trial import one_group
    from groupwise.streams import Streams
    from groupwise.training.distributed import World
    from groupwise.training.run.preflight import check_domain
    from groupwise.training.run.stages import load_weights

    domain = domains.base
    is_own_domain = is_users(loaded.domain)
    if is_own_domain:
        _keep_laws(domain)
    with naming_failed_method(domain):
        for recipe in job.recipes:
            check_domain(domains.of(recipe), recipe, Streams(loaded.seed), World())
    sizes = domain.learner.sizes()
    num_groups = min(span.train.prompts_per_step, domain.num_prompts)
    print_text(f"experiment  {loaded.name}, method {loaded.objective.name}, seed {loaded.seed}")
    print_text(f"model       {sizes.trained:,} of {sizes.total:,} parameters are trained; log-probs in {domain.unit}")
    print_text(
        f"data        {domain.num_prompts:,} training prompts; a step takes {num_groups} with {span.train.group_size}"
        " members each"
    )
    if is_own_domain:
        print_text("laws        all kept (groupwise.testing.check_domain)")
    print_text(
        "stages      "
        + ", ".join(
            f"{stage.name} ({stage.train.num_steps} steps{'' if stage.samples else ', supervised'})"
            for stage in (recipe.fitted(domain.num_prompts) for recipe in job.recipes)
        )
    )
    for remark in [*job.remarks, *domains.remarks(job.recipes)]:
        print_text(f"note        {remark}")
    sampling = next((recipe for recipe in job.recipes if recipe.samples), job.recipes[-1])
    before = [stage.name for stage in loaded.spans[: loaded.spans.index(span)]]
    if loaded.start is not None:
        load_weights(loaded.start, domain)
        print_text(f"note        the model answers as it is after the warm-up of {loaded.start}")
    elif before:
        print_text(
            f"note        the model answers as it is before {', '.join(before)}, which check does not run; write"
            " start=RUN to see it after the warm-up of an earlier run"
        )
    with naming_failed_method(domain):
        group = one_group(span, domains.of(sampling), prompt)
    _show(group, untrained=bool(before) and loaded.start is None)
    print_text("Everything was read; nothing was trained.")


def _keep_laws(domain: Domain) -> None:
    """Raises a `ConfigError` that lists the laws that a user's domain breaks."""
    from groupwise.config import ConfigError
    from groupwise.testing.domain import check_domain as check_laws
    from groupwise.testing.slot import BrokenLaws

    try:
        check_laws(domain)
    except BrokenLaws as error:
        raise ConfigError(str(error)) from error


def _show(group: OneGroup, *, untrained: bool) -> None:
    from groupwise.cli.output import console, print_text, shorten, table
    from groupwise.cli.sample import member_text

    out = console()
    out.print()
    for name, value in group.prompt.items():
        print_text(f"{name}: {shorten(value, 400)}")
    names = list(group.rewards)
    shared = [
        name
        for name, value in group.members[0].items()
        if all(str(member.get(name)) == str(value) for member in group.members)
    ]
    rows = [
        (
            place,
            shorten(member_text(member, shared), 60) + (" (cut off)" if cut else ""),
            decisions,
            *("-" if group.rewards[name][place] is None else f"{group.rewards[name][place]:.3g}" for name in names),
            f"{advantage:+.3f}",
        )
        for place, (member, cut, decisions, advantage) in enumerate(
            zip(group.members, group.truncated, group.num_decisions, group.advantages, strict=True)
        )
    ]
    heads = [f"{name} x {group.weights[name]:g}" for name in names]
    out.print(
        table(["#", "member", "decisions", *heads, "advantage"], rows, numbers=["#", "decisions", *heads, "advantage"])
    )
    for sentence in [*group.events, *group.broken_laws]:
        print_text(sentence)
    if group.rewards and not group.broken_laws:
        print_text("Each reward gives the same values again, and in reverse order.")
    if group.flat:
        advice = (
            ", as is to be expected of a model that is not trained yet"
            if untrained
            else "; try --prompt 1 or another reward"
        )
        print_text(f"All members got the same reward, so this group teaches nothing{advice}.")
