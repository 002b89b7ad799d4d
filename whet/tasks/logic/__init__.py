"""Puzzles with one solution, proved by search: one task per file."""
