"""How a batch is scored: in threads and processes, within limits, checked, and as a table."""
