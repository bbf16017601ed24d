"""Models that the papers use, and any of the user's own."""
