"""The scoring of a batch: in threads and processes, within limits, with checked values, into a table."""
