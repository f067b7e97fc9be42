"""Images: generation by diffusion and flow models, restoration, and the rewards of images. It comes in by the entry
points of `groupwise`, which imports nothing of it.
"""
