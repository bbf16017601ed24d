"""Experiments as values: specs, runs kept in folders, comparisons and the catalog of parts."""
