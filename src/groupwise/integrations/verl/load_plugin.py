"""Registers with verl when it is imported: verl imports this module by its entry point, and calls nothing in it."""

from groupwise.integrations.verl.plugin import load

load()
