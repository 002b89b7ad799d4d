"""Puzzles with a single solution, proved by search: one task per file."""
