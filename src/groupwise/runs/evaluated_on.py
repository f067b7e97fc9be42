"""The decision when a result may be called held-out: the prompts of an evaluation, compared with the prompts that were
trained on.
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
    """The number of prompts that a run is evaluated on, and how many of them are also trained on.

    Args:
        num: the number of different prompts that are evaluated; 0 where no prompt is recorded. A folder that does not
            state the number counts as one prompt.
        num_trained: the number of these prompts that any stage trains on.

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
        """Counts the evaluated prompts, and how many of them are also trained on.

        Args:
            trained, evaluated: one text a prompt, the same for the same prompt.

        Example:
            >>> EvaluatedOn.among({"a", "b"}, {"b", "c"})
            EvaluatedOn(num=2, num_trained=1)
        """
        return EvaluatedOn(len(evaluated), len(evaluated & trained))

    @staticmethod
    def read(config: Mapping[str, Any], starts: Sequence[Any]) -> EvaluatedOn:
        """Reads the counts that a run's folder states; a folder of an older version states none, and its configuration
        implies them.

        Args:
            config: the table in `config.json`.
            starts: the entries of `environment.json`.

        Example:
            >>> EvaluatedOn.read({"domain": {"kind": "diffusion"}}, []).prompts
            'training prompts'
        """
        recorded_counts = starts[-1].get(NOTED) if starts and isinstance(starts[-1], Mapping) else None
        counts = (
            [recorded_counts.get(name) for name in ("num", "num_trained")]
            if isinstance(recorded_counts, Mapping)
            else []
        )
        match counts:
            case [int(num), int(num_trained)]:
                return EvaluatedOn(num, num_trained)
        if not config:
            return EvaluatedOn()
        domain = config.get("domain")
        domain = domain if isinstance(domain, Mapping) else {}
        data = domain.get("data")
        # In older versions only image models could be evaluated on their training prompts, and they were unless the
        # configuration held prompts out.
        num_held_out = data.get("num_held_out") if isinstance(data, Mapping) else None
        return EvaluatedOn(1, int(domain.get("kind") == "diffusion" and not num_held_out))

    @staticmethod
    def read_folder(run: Path) -> EvaluatedOn:
        """Reads the counts from the folder's two small files; both counts are 0 where the files cannot be read.

        Example:
            >>> EvaluatedOn.read_folder(Path("nowhere")).prompts
            'evaluation prompts'
        """
        config, environment = (_table(path) for path in (RunFolder(run).config, RunFolder(run).environment))
        starts = environment.get("starts")
        return EvaluatedOn.read(config, starts if isinstance(starts, list) else [])

    @staticmethod
    def together(parts: Iterable[EvaluatedOn]) -> EvaluatedOn:
        """Returns the counts of one run where all runs call their prompts the same; otherwise no counts.

        Args:
            parts: the counts of each run.

        Example:
            >>> (
            ...     EvaluatedOn.together([EvaluatedOn(5, 0), EvaluatedOn(8, 0)]).prompts,
            ...     EvaluatedOn.together([EvaluatedOn(5, 0), EvaluatedOn(5, 5)]).prompts,
            ... )
            ('held-out prompts', 'evaluation prompts')
        """
        distinct_counts = set(parts)
        prompt_names = {counts.prompts for counts in distinct_counts}
        return next(iter(distinct_counts)) if len(prompt_names) == 1 else EvaluatedOn()

    @property
    def prompts(self) -> str:
        """The words for the evaluated prompts."""
        return self.called("prompts")

    def called(self, noun: str) -> str:
        """Returns the words for the evaluated prompts.

        Args:
            noun: `prompts`, or the domain's word for prompts.

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
        """The words before and after a metric's name."""
        return ("held-out ", "") if self.num and not self.num_trained else ("", f" on {self.prompts}")

    def of(self, metric: str) -> str:
        """Returns a metric's name with the prompts that the metric was measured on."""
        before, after = self.around
        return f"{before}{metric}{after}"

    def record(self) -> dict[str, int]:
        """Returns plain values for `environment.json`."""
        return {"num": self.num, "num_trained": self.num_trained}


def _table(path: Path) -> dict[str, Any]:
    try:
        table = read_json(path)
    # A person may have damaged or removed the file.
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}
