"""The verbs `groupwise report`, `doctor` and `compare`."""
