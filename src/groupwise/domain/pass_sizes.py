"""The number of rows that a pass of an image model takes, found by measuring and bounded without any key.

    rows = floor((budget - fixed) / per_row)        at most `MOST_ROWS` without a gradient

Passes over one row and over a few give `fixed` and `per_row`. A size changes a result only by rounding. Sizes belong to
the state of a run: processes agree on the smallest, and a resumed run cuts as the run before it did.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from groupwise.config import ConfigError
from groupwise.memory import available_bytes, peak_bytes
from groupwise.processes import is_out_of_memory

# Limits on the passes of models that make images.

MOST_ROWS = 64
"""The most rows of a pass without a gradient, even if more fit: larger passes are hardly faster, and hold more
memory.
"""
CPU_BYTES = 2**27
"""The memory limit of a pass on a CPU, whose memory is shared with everything else."""
CUDA_SHARE = 0.5
"""The share of a GPU's free memory that a pass may hold. Rewards and an optimiser's moments are allocated later."""


SAMPLING: Final = "sampling"
"""Passes without a gradient: sampling, scoring, evaluation."""
UPDATE: Final = "update"
"""Passes with a gradient."""
DECODING: Final = "decoding"
"""Latents to images."""
ENCODING: Final = "encoding"
"""Images to latents."""
EVALUATION: Final = "evaluation"
"""Images of an evaluation, where they are of another size than those of sampling."""

_FEW = 4

_Result = TypeVar("_Result")


class PassSizes:
    """The rows of a pass, by kind of pass.

    Args:
        stated: rows that somebody chose for a kind, which are not measured.
        remedy: what to write where not even one row fits.

    Example:
        >>> sizes = PassSizes({"sampling": 2})
        >>> [part.tolist() for part in sizes.join("sampling", lambda rows: 2 * rows, torch.arange(5))]
        [[0, 2], [4, 6], [8]]
    """

    def __init__(self, stated: Mapping[str, int] | None = None, remedy: str = "a smaller model") -> None:
        self.stated, self._remedy = dict(stated or {}), remedy
        self.sizes: dict[str, int] = {}
        self.largest_update = 0
        """Rows of the largest pass with a gradient that was made."""

    def rows(self, kind: str) -> int:
        """Returns the rows of a pass; 1 where the kind was neither stated nor measured."""
        return min(self.stated.get(kind, self.sizes.get(kind, 1)), self.sizes.get(kind, 2**62))

    def knows(self, kind: str) -> bool:
        """Returns whether the rows of a kind were stated, measured or restored."""
        return kind in self.stated or kind in self.sizes

    def measure(
        self,
        kind: str,
        run: Callable[[int], Any],
        device: torch.device,
        budget_bytes: float,
        most: int | None = MOST_ROWS,
        agree: Callable[[int], int] | None = None,
    ) -> None:
        """Finds the rows of a kind by two passes, unless they are known.

        Args:
            run: makes a pass over that many rows.
            device: the device of the model.
            budget_bytes: what a pass may hold.
            most: the most rows, however many fit.
            agree: returns the smallest of one number a process, where a pass is made by all of them together. They
                would wait inside a pass in which memory ran out on one, so that this error is not caught.
        """
        if self.knows(kind):
            return
        size = 1
        try:
            # The first pass allocates memory that stays allocated and that later passes do not need again.
            run(1)
            single = peak_bytes(lambda: run(1), device)
            # This pass takes no more rows than fit if each needs as much as the first.
            few = _FEW if agree is None else agree(max(1, min(_FEW, int(budget_bytes // max(1, single)))))
            several = peak_bytes(lambda: run(few), device)
            per_row = max((several - single) / (few - 1), 1.0) if few > 1 else max(single, 1)
            size = max(1, int((budget_bytes - max(single - per_row, 0.0)) // per_row))
        except Exception as error:  # a few rows do not fit, so passes take one row
            if agree is not None or not is_out_of_memory(error):
                raise
        self.sizes[kind] = size if most is None else min(size, most)

    def each(self, kind: str, compute: Callable[[Tensor], _Result], rows: Tensor) -> Iterator[_Result]:
        """Calls `compute` without gradient on slices of `rows` and yields the results one by one, at least one. Where
        memory runs out, passes of this kind take half as many rows from then on.

        Args:
            compute: each row by itself; its randomness must not depend on the slice.
            rows: `[N]` or `[N, ...]`.

        Raises:
            ConfigError: memory ran out in a pass of one row.
        """
        start, any_pass = 0, False
        while start < len(rows) or not any_pass:
            part = rows[start : start + self.rows(kind)]
            try:
                # The caller gets the result outside of `no_grad`, so that its own gradients are not switched off.
                with torch.no_grad():
                    result = [compute(part)]
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if not self.halve(kind, len(part)):
                    raise ConfigError(
                        f"memory ran out in a pass of one image ({kind}); write {self._remedy}"
                    ) from error
            else:
                start, any_pass = start + max(1, len(part)), True
                # From here on only the caller holds the result.
                yield result.pop()
                continue
            free_memory()

    def join(self, kind: str, compute: Callable[[Tensor], _Result], rows: Tensor) -> list[_Result]:
        """Returns all results of `each`."""
        return list(self.each(kind, compute, rows))

    def apply(self, compute: Callable[[Tensor], _Result], rows: Tensor) -> Iterable[_Result]:
        """Calls `compute` on slices of `rows`, with gradient where it is on: `with_gradient`, or `each` of sampling."""
        return self.with_gradient(compute, rows) if torch.is_grad_enabled() else self.each(SAMPLING, compute, rows)

    def with_gradient(self, compute: Callable[[Tensor], _Result], rows: Tensor) -> list[_Result]:
        """Calls `compute` with gradient on slices of `rows`. Where there are several, each is computed again in the
        backward pass, so that no more than one slice's activations live at a time.

        Args:
            compute, rows: as in `each`.
        """
        parts = self.slices(rows)
        if len(parts) == 1:
            return [compute(rows)]
        return [checkpoint(compute, part, use_reentrant=False) for part in parts]

    def slices(self, rows: Tensor, *, whole: bool = False) -> tuple[Tensor, ...]:
        """Cuts rows into those of each pass with a gradient; `whole` takes all, as a stored graph needs."""
        parts = (rows,) if whole else rows.split(self.rows(UPDATE))
        self.largest_update = max(self.largest_update, len(parts[0]))
        return parts

    def halve(self, kind: str, num_rows: int) -> bool:
        """Takes half of a pass that did not fit; false where it had one row."""
        if num_rows <= 1:
            return False
        self.sizes[kind] = num_rows // 2
        return True

    def record(self) -> dict[str, int]:
        """Returns the measured sizes, for a checkpoint or for other processes."""
        return dict(self.sizes)

    def restore(self, sizes: Mapping[str, int]) -> None:
        """Takes sizes over from a record; kinds that it lacks keep theirs."""
        self.sizes |= sizes


def pass_budget(device: torch.device, reserved_bytes: float = 0.0) -> float:
    """Returns the bytes that a pass may hold.

    Args:
        device: the device of the model.
        reserved_bytes: what will be allocated in addition to it, such as an optimiser's moments.

    Example:
        >>> pass_budget(torch.device("cpu")) == CPU_BYTES
        True
    """
    return CUDA_SHARE * (available_bytes(device, None) - reserved_bytes) if device.type == "cuda" else CPU_BYTES


def free_memory() -> None:
    """Frees what a failed pass left: frames of the error kept its tensors until now."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


# Results of passes, joined so that nothing is held twice.


def joined_rows(parts: Iterable[Mapping[str, Tensor]], num_rows: int) -> dict[str, Tensor]:
    """Joins tensors of consecutive slices: each slice is written into tensors of all rows and let go before the next is
    computed, where `parts` computes them one by one. Tensors with a gradient are concatenated.

    Args:
        parts: name -> `[n, ...]`, at least one part; the parts have `num_rows` rows together.
        num_rows: the number of rows of the result.

    Returns:
        name -> `[num_rows, ...]`; one part is returned as it is.

    Example:
        >>> joined_rows([{"a": torch.tensor([1, 2])}, {"a": torch.tensor([3])}], 3)["a"].tolist()
        [1, 2, 3]
    """
    rest = iter(parts)
    part = dict(next(rest))
    stop = _num_rows(part)
    if stop == num_rows:
        return part
    if any(value.requires_grad for value in part.values()):
        all_parts = [part, *rest]
        return {name: torch.cat([each[name] for each in all_parts]) for name in part}
    whole = {name: value.new_empty(num_rows, *value.shape[1:]) for name, value in part.items()}
    start = 0
    while True:
        for name, rows in whole.items():
            rows[start:stop] = part[name]
        if stop >= num_rows:
            return whole
        # The part is released before the next one is computed.
        del part
        part, start = dict(next(rest)), stop
        stop += _num_rows(part)


def joined(parts: Iterable[Tensor], num_rows: int) -> Tensor:
    """Joins one tensor a slice; see `joined_rows`.

    Example:
        >>> joined(iter([torch.zeros(2, 3), torch.ones(1, 3)]), 3).sum().item()
        3.0
    """
    return joined_rows(map(_one_tensor, parts), num_rows)["rows"]


def _one_tensor(rows: Tensor) -> dict[str, Tensor]:
    return {"rows": rows}


def _num_rows(part: Mapping[str, Tensor]) -> int:
    return len(next(iter(part.values())))
