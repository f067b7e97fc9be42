"""Bootstrap over seeds and prompts: exact where it can be, and covering what it claims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.coverage import KINDS, coverage
from benchmarks.false_calls import WORLDS, Drawn, called, measure
from scipy import stats

from groupwise.config import ConfigError
from groupwise.experiment import load_experiment, run
from groupwise_look.compare.grids import difference_bounds, score_bounds, variants
from groupwise_look.compare.statistics import (
    DATA,
    LEVEL,
    SAMPLES,
    START,
    Spread,
    all_alike,
    bootstrap,
    crossed,
    fewest_seeds,
    holm,
    p_value,
    paired_difference,
    seeds_needed,
    shared,
    sign_flips,
)


def test_equal_seeds_leave_only_the_spread_over_prompts():
    # Scores that do not depend on the seed: MS_s and MS_e are 0, MS_p / SP = var(prompts) / P, with P - 1 degrees of
    # freedom.
    scores = {str(index): float(index % 2) for index in range(64)}
    estimate = bootstrap(dict.fromkeys(range(3), scores))
    half = stats.t.ppf(0.975, 63) * (0.25 * 64 / 63 / 64) ** 0.5
    assert (estimate.low, estimate.high) == pytest.approx((0.5 - half, 0.5 + half), rel=0.03)


def test_equal_prompts_leave_only_the_spread_over_seeds():
    # Three seeds at 0, 1, 2: a t interval of 2 degrees of freedom, 1 +- 4.303 / sqrt 3, as far as three values have its
    # shape.
    estimate = bootstrap({seed: dict.fromkeys("abcd", float(seed)) for seed in range(3)})
    assert estimate.mean == 1.0
    assert (estimate.high - estimate.low) / 2 == pytest.approx(4.303 / 3**0.5, rel=0.15)
    assert estimate.spread.degrees == pytest.approx(2)
    wide = bootstrap({0: dict.fromkeys("abcd", 0.0), 1: dict.fromkeys("abcd", 1.0)})
    assert wide.high - wide.low > 8


def test_the_interval_has_the_width_of_the_normal_approximation():
    random = np.random.default_rng(1)
    scores = {0: {str(index): float(value) for index, value in enumerate(random.normal(size=400))}}
    values = np.array(list(scores[0].values()))
    estimate = bootstrap(scores)
    width = 1.96 * values.std() / 20
    assert estimate.low == pytest.approx(values.mean() - width, rel=0, abs=0.15 * width)
    assert estimate.high == pytest.approx(values.mean() + width, rel=0, abs=0.15 * width)


def test_the_resamples_give_the_interval_its_shape():
    # One seed far above the others: redrawn means reach further up than down.
    estimate = bootstrap(
        {seed: dict.fromkeys("abcd", value) for seed, value in enumerate([0.0, 0.01, 0.02, 0.01, 1.0, 0.0, 0.02, 0.01])}
    )
    assert estimate.high - estimate.mean > 1.2 * (estimate.mean - estimate.low)


def test_shared_prompts_are_drawn_together_and_other_prompts_apart():
    # The same hard prompts in every seed: averaging over 8 seeds must not shrink the interval. Prompts of their own: it
    # must.
    shared = {seed: {str(index): float(index % 2) for index in range(50)} for seed in range(8)}
    apart = {seed: {f"{seed}-{index}": float(index % 2) for index in range(50)} for seed in range(8)}
    wide, narrow = bootstrap(shared), bootstrap(apart)
    assert wide.mean == narrow.mean == 0.5
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(
        8**0.5 * stats.t.ppf(0.975, 49) / stats.t.ppf(0.975, 7), rel=0.1
    )


def test_what_two_variants_share_cancels():
    random = np.random.default_rng(2)
    hard = {str(index): float(value) for index, value in enumerate(random.normal(size=100))}
    better = {seed: {key: value + 0.1 for key, value in hard.items()} for seed in range(3)}
    plain = dict.fromkeys(range(3), hard)
    difference = paired_difference(better, plain)
    assert difference.mean == pytest.approx(0.1)
    assert difference.high - difference.low < 1e-9
    assert difference.low > 0
    assert bootstrap(better).low < 0


@pytest.mark.nightly
@pytest.mark.parametrize("num_seeds", [3, 5, 10])
def test_the_interval_holds_the_truth_as_often_as_it_says(num_seeds: int):
    for kind in KINDS:
        calibrated, _ = coverage(kind, num_seeds, num_prompts=128, num_tables=400)
        # Four hundred tables tell a share of .95 to +- .02; noise alone is covered more often than it must.
        assert calibrated >= 0.92, kind
        assert calibrated <= (1.0 if kind == "noise of single scores" else 0.98), kind


# Chances and numbers of seeds, against tables and simulation.


def test_the_chance_is_that_of_a_paired_t_test():
    differences = np.array([0.03, 0.05, -0.01, 0.02, 0.06])
    spread = Spread(float(differences.var(ddof=1)) / 5, 0.0, 5, 1)
    assert p_value(float(differences.mean()), spread) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert p_value(0.0, Spread(0.0, 0.0, 3, 1)) == 1.0


def test_the_parts_of_a_variance_keep_their_own_degrees_of_freedom():
    # Two parts of equal size and t = 2: the mean of the tails with 2 and with 99 degrees of freedom.
    spread = Spread(0.5, 0.5, 3, 100)
    expected = stats.t.sf(2.0, 2) + stats.t.sf(2.0, 99)
    assert p_value(2.0, spread) == pytest.approx(expected)
    assert p_value(2.0, Spread(0.0, 1.0, 3, 100)) == pytest.approx(2 * stats.t.sf(2.0, 99))


def test_the_signs_of_four_seeds_by_hand():
    # 1, 2, 3, -4 sums to 2. With the first sign fixed, |1 +- 2 +- 3 +- 4| >= 2 for 1+2+3+4 = 10, 1+2+3-4 = 2 itself,
    # 1+2-3+4 = 4, 1+2-3-4 = -4, 1-2+3+4 = 6, 1-2+3-4 = -2, 1-2-3-4 = -8, and not for 1-2-3+4 = 0.
    assert sign_flips(np.array([1.0, 2.0, 3.0, -4.0])) == pytest.approx(6 / 8 + 2 / 4**4)
    assert sign_flips(np.array([3.0, 1.0, 0.5, 0.1])) == all_alike(4), "no other choice of signs is as large"


def test_signs_of_many_seeds_are_drawn():
    random = np.random.default_rng(0)
    differences = random.normal(0.3, 1.0, (6, 14))
    enumerated = sign_flips(differences)
    # A difference of 0 in a fifteenth seed doubles both counts.
    drawn = sign_flips(np.hstack([differences, np.zeros((6, 1))]))
    # Shares of 16,384 draws have a standard error of .004 at most.
    assert drawn == pytest.approx(enumerated, abs=0.016)


@pytest.mark.parametrize("num_comparisons", [1, 2, 5, 12, 40])
def test_fewer_seeds_than_a_table_needs_call_nothing_and_enough_call_what_is_certain(num_comparisons: int):
    fewest = fewest_seeds(num_comparisons)
    for seeds, is_called in ((fewest - 1, False), (fewest, True)):
        chance = p_value(1.0, crossed(np.ones((seeds, 8))))
        assert chance is not None
        assert (holm(dict.fromkeys(range(num_comparisons), chance))[0] < LEVEL) == is_called
    assert seeds_needed(1.0, Spread(0.0, 0.0, 3, 8), num_comparisons=num_comparisons) == fewest


def test_holm_on_four_chances_by_hand():
    # Sorted .005, .011, .02, .04: times 4, 3, 2, 1, never falling.
    assert holm({"d": 0.04, "a": 0.005, "c": 0.02, "b": 0.011}) == pytest.approx(
        {"a": 0.02, "b": 0.033, "c": 0.04, "d": 0.04}
    )
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_the_number_of_seeds_finds_the_difference_as_often_as_it_says():
    # Seeds with a deviation of 1.5 times the difference.
    number = seeds_needed(0.1, Spread(0.15**2 / 5, 0.0, 5, 100))
    assert number is not None
    random = np.random.default_rng(0)

    def power(count: int) -> float:
        return float(np.mean(stats.ttest_1samp(random.normal(0.1, 0.15, (4000, count)), 0, axis=1).pvalue < 0.05))

    assert power(number) >= 0.79
    assert power(number - 2) < 0.8


def test_more_comparisons_need_more_seeds_and_shared_prompts_set_a_limit():
    spread = Spread(0.15**2 / 5, 0.0, 5, 100)
    single, among_twelve = seeds_needed(0.1, spread), seeds_needed(0.1, spread, num_comparisons=12)
    assert single is not None
    assert among_twelve is not None
    assert among_twelve > single
    assert seeds_needed(0.1, Spread(0.15**2 / 5, 0.05**2, 5, 100)) is None
    assert seeds_needed(0.0, spread) is None
    assert seeds_needed(0.1, Spread(0.0, 0.001, 1, 100)) is None


# An interval stays where the score can lie.


CONFIG = {
    "domain": {
        "rewards": {
            "right": {"kind": "exact_answer"},
            "form": {"kind": "format", "pattern": "a", "wrong": -1.0, "weight": 0.5},
        }
    }
}


def test_an_accuracy_near_one_has_no_interval_above_it() -> None:
    scores = {
        seed: {str(prompt): float(prompt % 16 != seed or prompt > 40) for prompt in range(64)} for seed in range(2)
    }
    free = bootstrap(scores)
    assert free.high > 1, "the case is one in which a free interval leaves the range"
    bounded = free.within(score_bounds(CONFIG, "greedy/right", [0.0, 1.0]))
    assert (bounded.mean, bounded.low, bounded.high) == (free.mean, free.low, 1.0)


def test_a_difference_of_accuracies_lies_between_minus_one_and_one() -> None:
    right = {seed: {str(prompt): 1.0 for prompt in range(4)} for seed in range(2)}
    wrong = {seed: {str(prompt): float(prompt == seed == 0) for prompt in range(4)} for seed in range(2)}
    free = paired_difference(right, wrong)
    assert free.high > 1
    assert free.within(difference_bounds((0.0, 1.0))).high == 1.0


@pytest.mark.parametrize(
    ("metric", "scores"), [("greedy/right", [0.5, 1.5]), ("restored/psnr", [27.0]), ("greedy/length", [20.0])]
)
def test_bounds_that_a_score_contradicts_are_not_believed(metric: str, scores: list[float]) -> None:
    assert score_bounds(CONFIG, metric, scores) is None


# `groupwise compare` calls at most 5 % of tables of equal variants different, whatever their runs are like.


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_at_most_one_table_in_twenty_of_equal_variants_has_a_call(world: str) -> None:
    num_tables = 400
    error = (LEVEL * (1 - LEVEL) / num_tables) ** 0.5
    shares = measure(WORLDS[world], paired=False, better=False, num_tables=num_tables)
    assert max(shares.values()) <= LEVEL + 2 * error, shares


def test_many_tables_at_once_are_judged_as_one_is() -> None:
    random = np.random.default_rng(0)
    gains = np.zeros((6, 1, 1), dtype=np.float32)
    gains[1] = 1
    verdicts = []
    for world in WORLDS.values():
        shape = (8, 6, 5, world.num_prompts)
        scores = world.draw(Drawn(random, shape, gains, paired=True)).astype(np.float64)
        differences = scores[:, 1:] - scores[:, :1]
        for table, calls in zip(differences, called(differences), strict=True):
            chances = {place: p_value(float(rows.mean()), crossed(rows)) for place, rows in enumerate(table)}
            expected = holm({place: chance for place, chance in chances.items() if chance is not None})
            assert calls.tolist() == [expected[place] < LEVEL for place in range(5)]
            verdicts += calls.tolist()
    assert 10 < sum(verdicts) < len(verdicts) - 10, "both verdicts occur"


# Runs of one seed share what they can: shown on real runs of three domains, whose methods and group sizes differ.


def trained(experiment: str | Path, out: Path, *changes: str) -> Path:
    return run(load_experiment(experiment, [*changes, "track.console=none"]), out, controls=False).folder.path


@pytest.mark.slow
def test_methods_group_sizes_and_trust_regions_share_data_weights_and_noise(tiny: Path, tmp_path: Path):
    grpo_run = trained(tiny, tmp_path / "grpo", "method=grpo")
    gspo_run = trained(tiny, tmp_path / "gspo", "method=gspo", "train.group_size=6", "trust.high=0.5")
    run_of_other_seed = trained(tiny, tmp_path / "seed", "method=grpo", "seed=1")
    assert shared(grpo_run, gspo_run) == (DATA, START, SAMPLES)
    assert shared(grpo_run, run_of_other_seed) == (DATA,)
    wider = trained(tiny, tmp_path / "wider", "method=grpo", "domain.model.shape.hidden_size=32")
    assert shared(grpo_run, wider) == (DATA,)
    # A folder that is cut off shares what it still shows.
    members = next(gspo_run.glob("rollouts/step-*.jsonl"))
    members.write_text(members.read_text()[:-40])
    assert shared(grpo_run, gspo_run) == (DATA, START, SAMPLES)
    members.unlink()
    assert shared(grpo_run, gspo_run) == ()


SHORT = {
    "restoration": [
        "stages.supervised.num_steps=2",
        "stages.grpo.num_steps=1",
        "domain.source.num_train=64",
        "domain.evaluation.repeats=1",
    ],
    "diffusion": [
        "stages.warm_up.num_steps=2",
        "stages.grpo.num_steps=1",
        "domain.evaluation.num_images=10",
        "domain.num_steps=4",
    ],
}


@pytest.mark.nightly
@pytest.mark.parametrize("domain", SHORT)
def test_runs_of_images_share_data_start_and_samples(domain: str, tmp_path: Path):
    changes = [*SHORT[domain], "train.prompts_per_step=4", "train.group_size=4"]
    grpo_run = trained(domain, tmp_path / "grpo", "method=grpo", "divergence.kind=none", *changes)
    ptrw_run = trained(domain, tmp_path / "ptrw", "method=ptrw", *changes)
    assert shared(grpo_run, ptrw_run) == (DATA, START, SAMPLES)
    assert shared(grpo_run, trained(domain, tmp_path / "seed", "method=ptrw", "seed=1", *changes)) == (DATA,)


# Variants: the product of the values, with commas inside brackets left alone.


def test_brackets_and_quotes_keep_their_commas():
    combinations = variants(["domain.stop=[a,b],[c]", "name='x,y',z"])
    assert [variant.overrides for variant in combinations] == [
        ("domain.stop=[a,b]", "name='x,y'"),
        ("domain.stop=[a,b]", "name=z"),
        ("domain.stop=[c]", "name='x,y'"),
        ("domain.stop=[c]", "name=z"),
    ]


def test_nothing_varied_is_one_variant_and_folders_are_plain_names():
    (unchanged,) = variants([])
    assert (unchanged.name, unchanged.folder) == ("as it is", "as-it-is")
    with_spaces, with_underscores = variants(["domain.data.path=/a b/c.jsonl,/a_b/c.jsonl"])
    assert with_spaces.folder.startswith("domain.data.path=_a_b_c.jsonl-")
    assert with_spaces.folder != with_underscores.folder
    assert len(variants([f"name={'x' * 300}"])[0].folder) < 120


@pytest.mark.parametrize(
    ("vary", "word"),
    [(["method"], "key=a,b"), (["method=a,,b"], "key=a,b"), (["a=1", "a=2"], "twice"), (["a=1,1"], "twice")],
)
def test_what_makes_no_grid_is_an_error(vary: list[str], word: str):
    with pytest.raises(ConfigError, match=word):
        variants(vary)
