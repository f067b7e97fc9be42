"""Short runs of the real loop in fp64, one a domain and a method, whose course is recorded: a change of any number on
the way is seen.
"""
