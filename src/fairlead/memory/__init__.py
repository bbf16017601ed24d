"""Rows per client at scale, and whether they fit."""
