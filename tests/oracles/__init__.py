"""Independent transcriptions of the published losses, one module a preset; each has ``loss`` and a hand-worked
``HAND``.
"""
