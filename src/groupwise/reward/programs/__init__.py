"""Rewards that run a program, and the wall that isolates the program from the machine."""
