"""What one step does: collect a batch, score it, update the weights, and the state that this changes."""
