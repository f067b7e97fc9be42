"""Groupwise inside other libraries: the objective in `integrations.trl` and `integrations.verl`, trained selectors in
`integrations.langchain` and `integrations.dspy`. Each is imported by name and needs its own library.
"""
