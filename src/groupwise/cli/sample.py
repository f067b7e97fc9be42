"""`groupwise sample`: what a trained model writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from groupwise.cli.arguments import RunCode, Threads
from groupwise.cli.output import console
from groupwise.cli.trained import ExperimentOption, Place, Which, to_sample
from groupwise.config import ConfigError
from groupwise.config.tables import visible

if TYPE_CHECKING:
    from groupwise.domain.base import Domain
    from groupwise.domain.protocol import Prompt


def sample(
    place: Place,
    prompt: Annotated[
        str | None,
        typer.Option(help="What to ask; training prompts are shown, and answered by their environment, when left out."),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Converse: every line that is typed is answered, until Ctrl-D.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Ask the text as it is, without the chat template that the run's prompts had.")
    ] = False,
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

    from groupwise.domain.returned import checked_prompt, checked_prompts, naming_failed_method
    from groupwise.training.run.rollout_records import with_files

    if chat and (prompt is not None or num > 1 or raw):
        option = "--prompt" if prompt is not None else "--raw" if raw else f"--num {num}"
        raise ConfigError(f"--chat and {option} exclude each other; leave one of them out")
    if prompt is not None:
        _require_utf8("--prompt", prompt)
    torch.set_num_threads(threads or 1)
    domain = to_sample(place, experiment, which, data=prompt is None and not chat, raw=raw, run_code=run_code)
    greedy: dict[str, float] = {"top_k": 1} if num == 1 else {}
    settings = greedy if temperature is None else {"temperature": temperature}
    with closing(domain), naming_failed_method(domain):
        domain.learner.eval()
        if chat:
            _converse(domain, settings, seed)
            return
        shown = range(min(3, domain.num_prompts))
        prompts = (
            checked_prompts(domain.prompts(shown), len(shown))
            if prompt is None
            else [checked_prompt("asked", domain.asked(prompt))]
        )
        records = _answers(domain, prompts, num, seed=seed, step=0, settings=settings)
    for record in with_files(records, out, Path()):
        console().print(Text(visible(record.get("prompt", "")), style="bold"))
        _print_answer(record)


def _answers(
    domain: Domain,
    prompts: Sequence[Prompt],
    num: int,
    *,
    seed: int,
    step: int,
    settings: Mapping[str, float],
) -> Sequence[Mapping[str, Any]]:
    """Samples completions of prompts and describes them."""
    import torch

    from groupwise.domain.returned import checked_records, checked_samples
    from groupwise.streams import Streams

    with torch.no_grad():
        samples = domain.sample(
            prompts, num, streams=Streams(seed), step=step, settings=settings, requires=frozenset({"log_prob"})
        )
    samples = checked_samples(samples, len(prompts), num, domain)
    return checked_records(domain.describe(samples, torch.arange(len(samples))), len(samples))


def _print_answer(record: Mapping[str, Any]) -> None:

    console().print(Text(f"{visible(member_text(record))}{'  (cut off)' if record.get('truncated') else ''}\n"))


def _require_utf8(place: str, text: str) -> None:
    """Refuses a text that no tokenizer can read."""

    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{place} {text!a}: half of a surrogate pair or a byte that is no UTF-8 stands in it; write it as UTF-8"
        ) from None


def _converse(domain: Domain, settings: dict[str, float], seed: int) -> None:
    """Answers what is typed, line by line, until the input ends. Every answer is based on all lines before it."""
    import sys

    from groupwise.domain.returned import checked_prompt

    # A domain without conversations raises here, before the user types a line.
    checked_prompt("conversation", domain.conversation(["a first line"]))
    turns: list[str] = []
    interactive = sys.stdin.isatty()
    if interactive:
        console().print("[dim]write a line and press Enter; Ctrl-D ends the conversation[/dim]")
    while True:
        try:
            line = input("> " if interactive else "")
        except (EOFError, KeyboardInterrupt):
            return
        if not line.strip():
            continue
        _require_utf8("a line of the conversation", line)
        turns.append(line)
        prompt = checked_prompt("conversation", domain.conversation(turns))
        (record,) = _answers(domain, [prompt], 1, seed=seed, step=len(turns), settings=settings)
        turns.append(str(record["text"]))
        _print_answer(record)


# Members as text: the completion, the image, or the entries of the record.


def member_text(record: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Describes a member by its record: the text or image in it, or otherwise its entries.

    Args:
        record: as `Domain.describe` gave it, images perhaps written to files.
        without: names of entries that are shown elsewhere, such as the prompt's columns.

    Example:
        >>> member_text({"prompt": "list-0", "key": "list-0", "seed": 3, "speeds": [0.12345678, 2.0]}, ["seed"])
        'speeds [0.1235, 2]'
        >>> member_text({"prompt": "2 + 2", "text": "4"})
        '4'
    """
    for name in ("completion", "text", "image"):
        if name in record:
            value = record[name]
            return f"image, {value.shape[0]} x {value.shape[1]}" if hasattr(value, "shape") else str(value)
    entries = [f"{name} {_short(value)}" for name, value in record.items() if name not in {"prompt", "key", *without}]
    # Lines are cut at the end, so the longest entry comes last.
    return "; ".join(sorted(entries, key=len))


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
