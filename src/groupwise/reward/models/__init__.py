"""Rewards that ask a model: a classifier, a reward model, a judge at an address."""
