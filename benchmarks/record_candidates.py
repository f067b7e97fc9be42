"""Writes candidates of an experiment's training queries with their measurements, for `domain.candidates`:

python benchmarks/record_candidates.py source_004_rewards --out candidates.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from groupwise.config import ConfigError
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import open_domain
from groupwise.streams import Streams
from groupwise_selection.domain import SelectionDomain
from groupwise_selection.source.recorded import FIELD_NAMES

_BATCH = 256


@torch.no_grad()
def record(domain: SelectionDomain, num_candidates: int, seed: int, log_probs: bool) -> dict[str, Any]:
    """Draws different choices of the domain's policy for every training query, and measures them.

    Args:
        domain: the policy, as it is; before training it draws around the nearest neighbours.
        num_candidates: draws for each query, of which equal ones are kept once.
        seed: key of the draws.
        log_probs: true records the nats of every pick; each draw is then kept, however often it comes.
    """
    tree: dict[str, Any] = {}
    for start in range(0, domain.num_prompts, _BATCH):
        prompts = domain.prompts(range(start, min(start + _BATCH, domain.num_prompts)))
        samples = domain.sample(
            prompts, num_candidates, streams=Streams(seed), step=0, settings={}, requires=frozenset({"log_prob"})
        )
        reverse = 1 if domain.config.order == "first_pick_first" else -1
        for row, group in enumerate(samples.group.tolist()):
            picks = [pick for pick in samples.payload["picks"][row].tolist() if pick >= 0]
            measured = samples.payload["measured"][row][len(picks) - 1]
            entry = {theirs: getattr(measured, ours) for theirs, ours in FIELD_NAMES.items()}
            entry = {"pointer_pos": picks[::reverse], **entry}
            if log_probs:
                entry["log_probs"] = samples.old_log_prob[row, : len(picks)].tolist()[::reverse]
            candidates = tree.setdefault(prompts[group].key, {"pointer_candidates": []})["pointer_candidates"]
            if log_probs or entry not in candidates:
                candidates.append(entry)
    return tree


def main() -> None:
    """Reads the arguments and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", help="name or file of an experiment of the selection domain")
    parser.add_argument("settings", nargs="*", help="changes of it, key=value")
    parser.add_argument("--out", required=True, type=Path, help="the JSON file to write")
    parser.add_argument("--candidates", type=int, default=16, help="draws for each query")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    parser.add_argument("--log-probs", action="store_true", help="record the log-probs of the draws too")
    arguments = parser.parse_args()
    domain = open_domain(load_experiment(arguments.experiment, arguments.settings))
    if not isinstance(domain, SelectionDomain):
        raise SystemExit(f"{arguments.experiment} is no experiment of the selection domain; name one, as selection")
    tree = record(domain, arguments.candidates, arguments.seed, arguments.log_probs)
    arguments.out.write_text(json.dumps(tree) + "\n", encoding="utf-8")
    count = sum(len(entry["pointer_candidates"]) for entry in tree.values())
    print(f"{arguments.out}: {count} candidates of {len(tree)} queries")


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        raise SystemExit(f"error: {error}") from error
