"""How far the policy has moved: its weights, its entropy and its losses, at either end of a stage."""

from collections.abc import Callable

from groupwise_look.diagnosis.series import Series
from groupwise_look.diagnosis.stage import PLAIN_SUPERVISED, Stage

CHANGE = "weights/change"
UNMOVED = 1e-3
"""A policy within this distance of the reference, in nats per decision, has hardly moved."""
SOMEWHERE = 1e-2
"""Weights whose way has at least this relative length have moved."""


def largest_change(stage: Stage, count: int) -> Series | None:
    """Returns the larger of the first and the newest relative changes of the weights by an update.

    Args:
        stage: the rows.
        count: steps at either end; fewer where fewer made an update, as where the first one broke everything.
    """
    count = min(count, stage.count(CHANGE))
    if count == 0:
        return None
    ends = [series for series in (stage.first(CHANGE, count), stage.last(CHANGE, count)) if series is not None]
    return max(ends, key=lambda series: series.mean, default=None)


def path(stage: Stage) -> float | None:
    """Returns the approximate length of the way of the weights, relative to their size: the mean change of an update in
    the first and the last five steps, times the number of steps that made one.
    """
    first, last = stage.first(CHANGE, 5), stage.last(CHANGE, 5)
    if first is None or last is None:
        return None
    return (first.mean + last.mean) / 2 * stage.count(CHANGE)


def shrunken_steps(stage: Stage, count: int) -> tuple[Series, Series] | None:
    """Returns the first and the newest changes of the weights by an update, where those for one learning rate have
    become a tenth of what they were, and the gradient is at least half as large as it was; otherwise `None`.

    An optimiser that divides by the size of its gradients makes equal steps of equal gradients. Where steps dwindle,
    it divides by the larger gradients of an earlier stage, and the first steps were those of its momentum.

    Args:
        stage: the rows.
        count: steps at either end.
    """
    change, rate, gradient = (stage.ends(name, count) for name in (CHANGE, "learning_rate", "grad_norm"))
    if change is None or rate is None or gradient is None or min(rate[1].values) <= 0:
        return None
    if change[0].mean <= 0 or rate[0].mean <= 0:
        return None
    share = (change[1].mean / rate[1].mean) / (change[0].mean / rate[0].mean)
    return change if share < 0.1 and gradient[1].mean >= 0.5 * gradient[0].mean else None


def has_hardly_moved(stage: Stage) -> bool:
    """Returns whether most steps make updates and the policy is where it was: its surprisal has changed by less than 2
    % and less than two standard errors, and its weights have not gone a hundredth of their size. A policy may be
    another one at the same surprisal.

    Densities have no surprisal: there the KL alone shows movement, where there is one.
    """
    ends, taken, kl, way = stage.ends("surprisal"), stage.last("updates/taken"), stage.last("kl"), path(stage)
    if taken is None or sum(value > 0 for value in taken.values) < len(taken) / 2:
        return False
    if (kl is not None and abs(kl.mean) >= UNMOVED) or (way is not None and way > SOMEWHERE):
        return False
    if ends is None:
        return kl is not None
    start, last = ends
    return abs(last.mean - start.mean) <= 0.02 * abs(start.mean) and not last.above(start) and not start.above(last)


def entropy(stage: Stage, count: int) -> tuple[Series, Series] | None:
    """Returns the first and newest entropy, exact where the loss reads it, otherwise estimated by the surprisal; `None`
    of a density, whose entropy has no zero.

    Args:
        stage: the rows.
        count: steps at either end.
    """
    ends = stage.ends("entropy", count) or stage.ends("surprisal", count)
    if ends is None or min(*ends[0].values, *ends[1].values) < 0 or ends[0].mean <= 0:
        return None
    return ends


def missed_gain(stage: Stage, count: int, share: float = 0.5) -> tuple[Series, Series] | None:
    """Returns the best of a group at the start and the reward now, where less than a share of the way from the start's
    mean to that best was gone.

    Args:
        stage: the rows.
        count: steps at either end.
        share: the share of the way.
    """
    best, reward = stage.first("groups/best", count), stage.ends("reward", count)
    if best is None or reward is None:
        return None
    start, last = reward
    is_unused = best.mean > start.mean and last.mean - start.mean < share * (best.mean - start.mean)
    return (best, last) if is_unused else None


def first_loss(stage: Stage, count: int) -> Series | None:
    """Returns the first values of the supervised loss without its coefficient, whatever a schedule does to that;
    `None` where there are fewer.

    Args:
        stage: the stage of the losses.
        count: how many.
    """
    return _plain(stage, stage.first, count)


def last_loss(stage: Stage, count: int) -> Series | None:
    """Returns the newest values of the supervised loss without its coefficient; arguments as in `first_loss`."""
    return _plain(stage, stage.last, count)


def _plain(stage: Stage, values: Callable[[str, int], Series | None], count: int) -> Series | None:
    loss = values("loss_sup", count)
    if not stage.count("lambda_sup"):
        return loss
    plain = values(PLAIN_SUPERVISED, count)
    return plain if loss and plain and loss.steps == plain.steps else None
