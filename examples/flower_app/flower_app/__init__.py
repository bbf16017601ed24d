"""A federation on Flower."""
