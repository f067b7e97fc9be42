"""The parts that language and selection share: the head, scoring by token ids, the sampler, loading. Importing this
room imports no torch.
"""
