"""Training: the room of a run (`run/`), the room of a step (`step/`), and the configuration of both."""
