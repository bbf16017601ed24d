"""Optimizers of clients and server, and schedules of their learning rates."""
