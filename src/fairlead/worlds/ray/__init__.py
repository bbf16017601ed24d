"""Simulated clients that train on Ray actors, on one machine or many."""
