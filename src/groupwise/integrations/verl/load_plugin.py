"""Registers with verl when it is imported: verl imports this module by its entry point, and calls nothing in it."""

from __future__ import annotations

from groupwise.integrations.verl.plugin import load

load()
