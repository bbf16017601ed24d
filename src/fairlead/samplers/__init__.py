"""Who is asked to work."""
