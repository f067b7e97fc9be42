"""Hostile inputs, each a command line over files that were whole: a generator, so that another seed gives others."""

from __future__ import annotations

import json
import random
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tests.experiment.tiny import TINY
from tests.faults.mutate import spoil_file, spoil_json, spoil_text, spoiled
from tests.images.diffusion.small import TABLE as DIFFUSION
from tests.images.restoration.small import TABLE as RESTORATION
from tests.selection.tiny import TABLE as SELECTION

from groupwise.config import merge

# Short whatever the rest says.
SHORT = {"prompts_per_step": 2, "group_size": 2, "num_steps": 1}

ONCE = ["stages=[]", "controls=null", "domain.demonstrations=null", "train.num_steps=1"]


@dataclass(frozen=True)
class Hostile:
    """What is called, and words of which one must stand in what it says.

    Args:
        arguments: behind `groupwise`.
        names: of the thing that is wrong.
        what: for the message of a test.
    """

    arguments: list[str]
    names: tuple[str, ...]
    what: str


def hostile(seed: int, number: int, folder: Path, finished: Path) -> Hostile:
    """An input of a seed.

    Args:
        seed, number: which one.
        folder: empty; receives its files.
        finished: the folder of a run that ended.
    """
    draw = random.Random(f"{seed}/{number}")
    kinds = [
        configuration,
        configuration_text,
        command_line,
        rows,
        prompts,
        examples,
        images,
        model_folder,
        run_folder,
        run_folder,
    ]
    return kinds[number % len(kinds)](draw, folder, finished)


def tables() -> dict[str, dict[str, Any]]:
    """A whole small experiment of every domain."""
    quiet = {"train": SHORT, "checkpoint": {"every": 1}, "track": {"console": "none"}, "method": "grpo"}
    language = {key: value for key, value in tomllib.loads(TINY).items() if key not in ("stages", "controls")}
    language["domain"].pop("demonstrations")
    diffusion = {key: value for key, value in DIFFUSION.items() if key != "demonstrations"}
    trust = {"trust": {"kind": "clip", "low": 0.01, "high": 0.01}}
    return {
        "language": {**merge(language, {"train": SHORT}), "method": "grpo"},
        "diffusion": {**quiet, **trust, "domain": diffusion},
        "restoration": {**quiet, "domain": RESTORATION},
        "selection": {**quiet, "domain": SELECTION},
    }


def configuration(draw: random.Random, folder: Path, finished: Path) -> Hostile:
    """One key of a whole configuration."""
    name = draw.choice(sorted(tables()))
    tree, key = spoiled(draw, tables()[name])
    file = folder / "hostile.json"
    file.write_text(json.dumps(tree))
    verb = draw.choice(["train", "train", "check", "estimate"])
    out = ["--out", "out", "--no-controls"] if verb == "train" else ["--no-measure"] if verb == "estimate" else []
    return Hostile(
        [verb, str(file), *out],
        (key, "hostile.json", *map(str, tree if isinstance(tree, dict) else ())),
        f"{name}: {key}",
    )


def configuration_text(draw: random.Random, folder: Path, finished: Path) -> Hostile:
    """The bytes of a TOML file."""
    file = folder / "hostile.toml"
    short = TINY.replace("num_steps = 3", "num_steps = 1").replace("num_steps = 2", "num_steps = 1")
    file.write_bytes(spoil_text(draw, short.encode()))
    if draw.random() < 0.2:
        spoil_file(draw, file)
    # Where the stages are cut off, a run is as long as it is by default.
    return Hostile(
        ["train", str(file), "train.max_seconds=5", "--out", "out", "--no-controls"],
        ("hostile.toml", "train.", "domain.", "stages", "optimiser", "trust"),
        "a TOML file",
    )


def command_line(draw: random.Random, folder: Path, finished: Path) -> Hostile:
    """Words that no verb expects."""
    (folder / "tiny.toml").write_text(TINY)
    (folder / "file").write_text("text")
    (folder / "folder").mkdir()
    key = draw.choice(
        [
            "seed",
            "train.group_size",
            "domain.data.num_train",
            "method",
            "trust.kind",
            "name",
            "domain.rewards.correct.kind",
            "optimiser.learning_rate",
        ]
    )
    value = draw.choice(
        [
            "",
            "9" * 6000,
            "[" * 100_000,
            "{" * 300,
            "\udcff",
            "nan",
            "-1",
            "[1, [2, [3]]]",
            "'",
            '"\\ud800"',
            "a" * 100_000,
            "1e999",
            "2024-01-01",
            "a=b=c",
        ]
    )
    items = [
        f"{key}={value}",
        f"={value}",
        key,
        f"{'a.' * draw.choice([100, 20_000])}a=1",
        f"{key}.a.b={value}",
        "--nothing",
        f"{key} ={value}",
        f"[{key}]=1",
        "x\ny=1",
    ]
    words = {
        "train": [
            *draw.sample(items, 2),
            "--out",
            draw.choice(["out", "file", "file/out", "a" * 300, "/dev/null", "/proc/none", "\udcff", ""]),
        ],
        "check": draw.sample(items, 2),
        "estimate": [*draw.sample(items, 1), "--no-measure"],
        "methods": [draw.choice(["grpo+grpo", "a" * 5000, "\udcff", "../..", "grpo+", "+", "/"])],
        "compare": ["--vary", draw.choice(items), "--out", "compared"],
        "sample": [
            "--prompt",
            draw.choice(["\udcff", "x" * 100_000, ""]),
            "--num",
            draw.choice(["1", "0", "-1", "9" * 30]),
        ],
        "report": ["--out", draw.choice(["folder", "file/x", "a" * 300])],
        "evaluate": ["--which", draw.choice(["../..", "a" * 300, "99", "\udcff", ""])],
        "export": ["--out", draw.choice(["folder", "file", "file/x", "a" * 300])],
        "train ": [
            "--seed",
            draw.choice(["-1", "9" * 30, "x", "1.5"]),
            "--threads",
            draw.choice(["0", "-1", "9" * 12, "x"]),
            "--out",
            "out",
        ],
    }
    verb = draw.choice(sorted(words))
    subject = str(finished) if verb in ("sample", "report", "evaluate", "export") else str(folder / "tiny.toml")
    if draw.random() < 0.3:
        subject = draw.choice(
            [
                "a" * 300,
                "\udcff",
                str(folder / "file"),
                str(folder / "folder"),
                "/dev/zero",
                "/",
                "",
                "\n",
                "language.toml",
            ]
        )
    first = [] if verb == "methods" else [subject]
    return Hostile([verb.strip(), *first, *words[verb]], (), f"{verb} {first} {words[verb]}"[:300])


def rows(draw: random.Random, folder: Path, finished: Path) -> Hostile:
    """Prompts of a language model from a file."""
    made = [{"prompt": f"sort {n}", "answer": str(n), "level": n, "tags": ["a"]} for n in range(12)]
    ending = draw.choice([".jsonl", ".jsonl", ".json", ".parquet"])
    file = folder / f"rows{ending}"
    if ending == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(made), file)
    else:
        file.write_text(json.dumps(made) if ending == ".json" else "".join(json.dumps(row) + "\n" for row in made))
    spoil_file(draw, file)
    (folder / "tiny.toml").write_text(TINY)
    source = f'domain.data.source={{kind="files", paths=[{json.dumps(str(file))}]}}'
    model = f"domain.model={{kind='pretrained', path={json.dumps(str(finished / 'model'))}}}"
    more = draw.choice(
        [
            [],
            ['domain.data.prompt_template="{prompt} {answer} "'],
            ["domain.chat.use=always"],
            ["domain.data.answer_column=level"],
        ]
    )
    numbers = ["domain.data.num_train=null", "domain.data.num_held_out=2"]
    return Hostile(
        ["train", str(folder / "tiny.toml"), source, model, *numbers, *ONCE, *more, "--out", "out"],
        ("rows", "data", "prompt", "sort"),
        f"rows in {ending}",
    )


def prompts(draw: random.Random, folder: Path, finished: Path) -> Hostile:
    """Prompts of an image model from a file."""
    file = folder / draw.choice(["prompts.txt", "prompts.jsonl"])
    labels = [{"label": n, "prompt": f"digit {n}"} for n in range(5)]
    file.write_text(
        "".join(json.dumps(row) + "\n" for row in labels)
        if file.suffix == ".jsonl"
        else "\n".join(row["prompt"] for row in labels)
    )
    spoil_file(draw, file)
    (folder / "diffusion.json").write_text(json.dumps(tables()["diffusion"]))
    source = f'domain.data.source={{kind="prompts", path={json.dumps(str(file))}}}'
    return Hostile(
        ["train", str(folder / "diffusion.json"), source, "train.num_steps=1", "--out", "out"],
        ("prompts", "prompt", "label", "class"),
        file.name,
    )


def examples(draw: random.Random, folder: Path, finished: Path) -> Hostile:
    """Queries and examples of a selector."""
    for name, more in (
        ("queries", {"answers": ["1"], "pool": [f"e{n}" for n in range(4)]}),
        ("examples", {"answer": "1"}),
    ):
        made = [
            {"id": f"{name[0]}{n}", "question": f"what {n}", "embedding": [1.0, n / 8, 0.5], **more} for n in range(8)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    file = folder / draw.choice(["queries.jsonl", "examples.jsonl"])
    spoil_file(draw, file)
    (folder / "selection.json").write_text(json.dumps(tables()["selection"]))
    paths = ", ".join(f"{name}={json.dumps(str(folder / f'{name}.jsonl'))}" for name in ("queries", "examples"))
    source = f'domain.source={{kind="files", {paths}, num_held_out=2}}'
    return Hostile(
        ["train", str(folder / "selection.json"), source, "--out", "out"],
        (file.name, "source", "task_model", "embedding"),
        file.name,
    )


def images(draw: random.Random, folder: Path, finished: Path) -> Hostile:
    """A folder of images."""
    random_pixels = np.random.default_rng(draw.randrange(2**32))
    for where in ("clean", "degraded"):
        (folder / where).mkdir()
        for number in range(6):
            Image.fromarray(random_pixels.integers(0, 256, (8, 8), dtype=np.uint8)).save(
                folder / where / f"image{number}.png"
            )
    file = draw.choice(sorted((folder / draw.choice(["clean", "degraded"])).iterdir()))
    if draw.random() < 0.3:
        other = draw.choice(["RGBA", "I;16", "F", "1", "P", "huge", "GIF"])
        file.unlink()
        if other == "huge":
            Image.new("1", (20_000, 20_000)).save(file)
        elif other == "GIF":
            Image.new("L", (8, 8)).save(file, format="GIF", save_all=True, append_images=[Image.new("L", (8, 8), 9)])
        else:
            Image.new(other, (8, 8)).save(file, format="TIFF" if other in ("F", "I;16") else "PNG")
    else:
        spoil_file(draw, file)
    (folder / "restoration.json").write_text(json.dumps(tables()["restoration"]))
    pair = (
        f", degraded={json.dumps(str(folder / 'degraded'))}"
        if file.parent.name == "degraded" or draw.random() < 0.5
        else ""
    )
    source = (
        f'domain.source={{kind="folder", clean={json.dumps(str(folder / "clean"))}{pair}, channels=1, num_held_out=2}}'
    )
    arguments = [
        "train",
        str(folder / "restoration.json"),
        source,
        "domain.num_train=null",
        *(["domain.degradation=null"] if pair else []),
        "--out",
        "out",
    ]
    return Hostile(arguments, (file.name, file.stem, "clean", "source"), f"an image, {file.parent.name}/{file.name}")


def model_folder(draw: random.Random, folder: Path, finished: Path) -> Hostile:
    """A language model's folder with one file spoiled."""
    model = folder / "model"
    shutil.copytree(finished / "model", model)
    file = draw.choice(sorted(model.iterdir()))
    if file.suffix == ".json" and draw.random() < 0.6:
        file.write_bytes(spoil_json(draw, file.read_bytes()))
    else:
        spoil_file(draw, file)
    (folder / "tiny.toml").write_text(TINY)
    verb = draw.choice(["train", "estimate", "sample"])
    if verb == "sample":
        arguments = ["sample", str(model), "--experiment", str(folder / "tiny.toml"), "--prompt", "sort 3 1 2 :"]
    else:
        arguments = [
            verb,
            str(folder / "tiny.toml"),
            "--model",
            str(model),
            *ONCE,
            *(["--out", "out"] if verb == "train" else ["--no-measure"]),
        ]
    return Hostile(arguments, ("model", file.name), f"the model's {file.name}")


def run_folder(draw: random.Random, folder: Path, finished: Path) -> Hostile:
    """A run's folder with one file spoiled, or several."""
    run = folder / "run"
    shutil.copytree(finished, run)
    verb = draw.choice(["resume", "resume", "report", "doctor", "evaluate", "sample", "export", "train", "check"])
    if verb == "resume" and draw.random() < 0.7:
        (run / "summary.json").unlink()
    files = sorted(path for path in run.rglob("*") if path.is_file())
    top = [path for path in files if path.parent == run]
    spoiled_files = [draw.choice(draw.choice([top, files])) for _ in range(draw.choice([1, 1, 2]))]
    for file in dict.fromkeys(spoiled_files):
        spoil_file(draw, file)
    more = {
        "export": ["--out", "exported"],
        "train": ["train.num_steps=1", *ONCE[:2], "--out", "out"],
        "sample": ["--prompt", "sort 3 1 2 :"],
    }
    names = tuple(part for file in spoiled_files for part in (file.name, file.stem, file.parent.name))
    return Hostile(
        [verb, str(run), *more.get(verb, [])],
        names,
        f"{verb} after {', '.join(str(file.relative_to(run)) for file in spoiled_files)}",
    )
