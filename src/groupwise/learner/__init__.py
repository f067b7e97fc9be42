"""A learner holds a policy's weights and steps them: here, in shards, or behind a server. The loop asks nobody else.

`protocol` says what a learner is, `local` is the one whose weights are a module of this process.
"""
