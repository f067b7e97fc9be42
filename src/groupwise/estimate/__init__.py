"""The cost of a training step before it is run: memory, operations and seconds by part, from a model's shape and a
measured or documented machine.
"""
