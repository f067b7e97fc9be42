"""The ratio of the whole member: the product over its decisions."""

from __future__ import annotations

import math

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.ratio import Product


def test_product_and_its_gradient() -> None:
    # 4 * 0.5 = 2; both copies carry the gradient of the whole product.
    decisions = member_ratios([4.0, None, 0.5], [None, None, None])
    level = Product()(decisions.log_ratio, decisions).exp()
    close(decisions.masked(level, fill=1.0), [[2.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    close(gradient(level, decisions), [[4.0, 0.0, 4.0], [0.0, 0.0, 0.0]])


def test_token_gradient_is_each_decisions_own() -> None:
    decisions = member_ratios([4.0, 0.5])
    close(gradient(Product(gradient="token")(decisions.log_ratio, decisions).exp(), decisions), [[2.0, 2.0]])


def test_clamped_in_log_space_without_gradient_beyond() -> None:
    decisions = member_ratios([math.exp(50.0), math.exp(50.0)], [math.exp(-50.0), math.exp(-50.0)], old=-60.0)
    level = Product()(decisions.log_ratio, decisions)
    close(level, [[80.0, 80.0], [-80.0, -80.0]])
    close(gradient(level, decisions), [[0.0, 0.0], [0.0, 0.0]])
