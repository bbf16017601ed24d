"""Figures over a whole set of examples."""
