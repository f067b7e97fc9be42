"""The policy of selection: a pointer network, its configuration, its choices and its files."""
