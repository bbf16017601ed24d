"""Which clients are sampled."""
