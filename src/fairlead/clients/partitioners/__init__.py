"""Ways to deal a pooled data set to clients."""
