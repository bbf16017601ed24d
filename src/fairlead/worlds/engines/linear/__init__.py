"""Softmax regression by plain SGD: all local steps of all clients in one call of a compiled kernel."""

from fairlead.worlds.engines.linear.runs import linear_runs as linear_runs
