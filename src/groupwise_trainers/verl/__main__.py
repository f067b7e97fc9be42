"""Prints what to write for a method in verl: `python -m groupwise_trainers.verl gspo trust.high=0.0005`."""

import sys
from collections.abc import Sequence

from groupwise.config import ConfigError
from groupwise_trainers.foreign import named
from groupwise_trainers.verl.register import VARIABLE, VERL, edited_methods, loss_refusals


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the overrides of verl for a method with its edits; returns the exit status, 2 where verl cannot carry
    it.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print("write: python -m groupwise_trainers.verl METHOD [key=value ...]")
        return 0 if words else 2
    try:
        [(method, edits)] = edited_methods(" ".join(words))
        objective, name = named(method, edits, None)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if reasons := [*loss_refusals(objective), *VERL.advantage_refusals(objective)]:
        print(f"error: {'; '.join(reasons)}", file=sys.stderr)
        return 2
    if edits or "+" in method:
        print(f"export {VARIABLE}='{' '.join(words)}'  # in every process: on each node of Ray, or in its runtime_env")
    for line in VERL.overrides(objective, name):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
