"""Ways to run simulated clients: one idea, the same numbers, different speeds."""
