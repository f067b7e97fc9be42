"""Selection: which demonstrations to show, in which order. A decision is a pick."""
