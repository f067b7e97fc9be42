"""Rewards that ask a model: a classifier, a reward model, a judge behind an address."""
