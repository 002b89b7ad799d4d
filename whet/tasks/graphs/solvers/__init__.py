"""Exact solvers for small graphs, over node numbers and bitsets."""
