"""Image restoration: a network that repairs images, trained against any reward of the repaired image."""
