"""`groupwise sample`: what a trained model writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.arguments import RunCode, Threads
from groupwise.cli.trained import ExperimentOption, Place, Which

if TYPE_CHECKING:
    from groupwise.domain.base import Domain
    from groupwise.domain.protocol import Prompt


def sample(
    place: Place,
    prompt: Annotated[
        str | None,
        typer.Option(help="What to ask; training prompts are shown, and answered by their environment, when left out."),
    ] = None,
    num: Annotated[
        int, typer.Option(min=1, max=10_000, help="Completions of each prompt; more than one are sampled.")
    ] = 1,
    temperature: Annotated[
        float | None,
        typer.Option(min=0.01, help="Sampling temperature; unset takes the most likely token for a single completion."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    out: Annotated[Path, typer.Option(help="Where images go, of a model that makes some.")] = Path("samples"),
    experiment: ExperimentOption = None,
    which: Which = "final",
    threads: Threads = 1,
    run_code: RunCode = False,
) -> None:
    """Ask a run's model, or any model folder, something."""
    import torch
    from rich.text import Text

    from groupwise.cli.output import console
    from groupwise.cli.trained import to_sample
    from groupwise.config import ConfigError
    from groupwise.streams import Streams
    from groupwise.training.run.pictures import with_files

    if prompt is not None and not prompt.isascii():
        try:
            prompt.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"--prompt {prompt!a}: half of a surrogate pair or a byte that is no UTF-8 stands in it; write it as"
                " UTF-8"
            ) from None
    torch.set_num_threads(threads or 1)
    domain = to_sample(place, experiment, which, data=prompt is None, run_code=run_code)
    domain.learner.eval()
    prompts = domain.prompts(range(min(3, domain.num_prompts))) if prompt is None else [_asked(domain, prompt)]
    settings: dict[str, float] = (
        {"top_k": 1}
        if num == 1 and temperature is None
        else {}
        if temperature is None
        else {"temperature": temperature}
    )
    with torch.no_grad():
        samples = domain.sample(
            prompts, num, streams=Streams(seed), step=0, settings=settings, requires=frozenset({"log_prob"})
        )
    for record in with_files(domain.describe(samples, torch.arange(len(samples))), out, Path()):
        console().print(Text(f"{record.get('prompt', '')}", style="bold"))
        answer = next((record[name] for name in ("text", "image") if name in record), record)
        console().print(Text(f"{answer}{'  (cut off)' if record.get('truncated') else ''}\n"))


def _asked(domain: Domain, prompt: str) -> Prompt:
    """Returns the training prompt with this text and its columns; otherwise a prompt of the text alone, whose key
    is the text: held-out images go by it.
    """
    from groupwise.domain.protocol import Prompt

    same_prompts = (
        candidate
        for candidate in domain.prompts(range(domain.num_prompts))
        if candidate.columns.get("prompt") == prompt
    )
    return next(same_prompts, Prompt(prompt, {"prompt": prompt}))
