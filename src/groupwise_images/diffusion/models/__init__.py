"""Models of diffusers as denoisers, one family a file."""
