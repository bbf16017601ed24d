"""Who has which data."""
