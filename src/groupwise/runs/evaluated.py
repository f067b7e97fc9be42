"""Whether the prompts of an evaluation were trained on: the one place that decides when a result may be called
held-out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from groupwise.config import read_json
from groupwise.runs.folder import RunFolder

NOTED = "evaluated_on"
"""The entry of a start in `environment.json` that holds the counts."""


@final
@dataclass(frozen=True)
class EvaluatedOn:
    """What a run is evaluated on, counted.

    Args:
        num: different prompts that are evaluated; 0 where nothing is known of them. A folder that does not say how many
            there are counts as one prompt.
        num_trained: those of them that are trained on, by any stage.

    Example:
        >>> EvaluatedOn(512, 0).of("greedy/correct"), EvaluatedOn(10, 10).of("ode/seen")
        ('held-out greedy/correct', 'ode/seen on training prompts')
        >>> EvaluatedOn(10, 3).prompts
        'evaluation prompts (3 of 10 trained on)'
    """

    num: int = 0
    num_trained: int = 0

    @staticmethod
    def among(trained: Set[str], evaluated: Set[str]) -> EvaluatedOn:
        """Counts the prompts that are evaluated, and those trained on too.

        Args:
            trained, evaluated: what makes each prompt the one it is.

        Example:
            >>> EvaluatedOn.among({"a", "b"}, {"b", "c"})
            EvaluatedOn(num=2, num_trained=1)
        """
        return EvaluatedOn(len(evaluated), len(evaluated & trained))

    @staticmethod
    def read(config: Mapping[str, Any], starts: Sequence[Any]) -> EvaluatedOn:
        """What a run's folder says; where an older version wrote it, what its configuration implies.

        Args:
            config: what `config.json` holds.
            starts: the entries of `environment.json`.

        Example:
            >>> EvaluatedOn.read({"domain": {"kind": "diffusion"}}, []).prompts
            'training prompts'
        """
        noted = starts[-1].get(NOTED) if starts and isinstance(starts[-1], Mapping) else None
        counts = [noted.get(name) for name in ("num", "num_trained")] if isinstance(noted, Mapping) else []
        match counts:
            case [int(num), int(num_trained)]:
                return EvaluatedOn(num, num_trained)
        if not config:
            return EvaluatedOn()
        domain = config.get("domain")
        domain = domain if isinstance(domain, Mapping) else {}
        data = domain.get("data")
        # Only image models could be evaluated on what they were trained on, and were unless prompts were kept apart.
        kept = data.get("num_held_out") if isinstance(data, Mapping) else None
        return EvaluatedOn(1, int(domain.get("kind") == "diffusion" and not kept))

    @staticmethod
    def read_folder(run: Path) -> EvaluatedOn:
        """The same from the folder's two small files; nothing is known where they cannot be read.

        Args:
            run: the run folder.

        Example:
            >>> EvaluatedOn.read_folder(Path("nowhere")).prompts
            'evaluation prompts'
        """
        config, environment = (_table(path) for path in (RunFolder(run).config, RunFolder(run).environment))
        starts = environment.get("starts")
        return EvaluatedOn.read(config, starts if isinstance(starts, list) else [])

    @staticmethod
    def together(parts: Iterable[EvaluatedOn]) -> EvaluatedOn:
        """What may be said of several runs at once: what is true of each, or nothing.

        Args:
            parts: one a run.

        Example:
            >>> (
            ...     EvaluatedOn.together([EvaluatedOn(5, 0), EvaluatedOn(8, 0)]).prompts,
            ...     EvaluatedOn.together([EvaluatedOn(5, 0), EvaluatedOn(5, 5)]).prompts,
            ... )
            ('held-out prompts', 'evaluation prompts')
        """
        different = set(parts)
        said = {each.prompts for each in different}
        return next(iter(different)) if len(said) == 1 else EvaluatedOn()

    @property
    def prompts(self) -> str:
        """What to call the prompts."""
        return self.called("prompts")

    def called(self, noun: str) -> str:
        """What to call them.

        Args:
            noun: `prompts`, or what a domain calls them.

        Example:
            >>> EvaluatedOn(8, 0).called("queries")
            'held-out queries'
        """
        if self.num and not self.num_trained:
            return f"held-out {noun}"
        if self.num and self.num_trained >= self.num:
            return f"training {noun}"
        return f"evaluation {noun}" + (f" ({self.num_trained} of {self.num} trained on)" if self.num else "")

    @property
    def around(self) -> tuple[str, str]:
        """What stands before and after a metric's name."""
        return ("held-out ", "") if self.num and not self.num_trained else ("", f" on {self.prompts}")

    def of(self, metric: str) -> str:
        """A metric with what it was measured on.

        Args:
            metric: its name.
        """
        before, after = self.around
        return f"{before}{metric}{after}"

    def record(self) -> dict[str, int]:
        """Plain values for `environment.json`."""
        return {"num": self.num, "num_trained": self.num_trained}


def _table(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    # The folder is as somebody left it.
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
