"""Group-relative policy optimisation for any stochastic policy."""
