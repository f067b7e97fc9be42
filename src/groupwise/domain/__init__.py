"""Domains: thin adapters between a kind of model and the objective."""
