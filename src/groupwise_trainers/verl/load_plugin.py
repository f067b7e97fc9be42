"""Registers with verl when it is imported: verl imports this module by its entry point, and calls nothing in it."""

import sys

from groupwise_trainers.verl.register import load

# Tools that read every module of a package import this one without verl.
if "verl" in sys.modules:
    load()
