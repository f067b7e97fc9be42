"""The reward that runs a program, and the wall behind which it runs."""
