"""Terms that clients add to their local gradient."""
