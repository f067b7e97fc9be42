"""Looking at runs: the doctor, the report and comparisons. It comes in by the entry points of `groupwise`, which
imports nothing of it.
"""
