"""One step: it collects a batch, scores it, updates the weights, and changes the state of the run."""
