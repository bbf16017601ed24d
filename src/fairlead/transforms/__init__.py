"""Changes to the direction that the server follows."""
