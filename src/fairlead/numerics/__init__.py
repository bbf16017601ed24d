"""Numerical kernels: row products, order statistics, the minimum-norm point, compiled loops."""
