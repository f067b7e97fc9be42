"""Methods and experiments as data."""
