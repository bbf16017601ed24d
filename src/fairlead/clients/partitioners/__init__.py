"""Ways to split a pooled data set among clients."""
