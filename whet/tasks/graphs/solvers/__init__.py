"""Exact solvers: bitsets, branch and bound, dynamic programming. Each counts its nodes and says
what it proved."""
