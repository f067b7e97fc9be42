"""A language policy whose weights are a server's that speaks the Tinker API: it samples, scores, differentiates and
steps.
"""
