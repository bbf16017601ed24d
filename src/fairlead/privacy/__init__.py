"""Differential privacy of clients, and secure aggregation."""
