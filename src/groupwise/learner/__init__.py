"""Learners: owners of a policy's weights and optimiser, in this process, in shards over devices, or behind a server.

The training loop reads and steps weights only through a learner. `protocol` defines its methods; `local` is the learner
whose weights are a module of this process.
"""
