"""The order in which attention adds up, one for all kernels: a token's bits do not depend on its
company."""

BLOCK = 64
"""Keys taken at a time, from the start of the sequence."""
CHUNK = 512
"""Keys summed on their own before they are joined with those before them."""
TILE = 32
"""Queries a program takes. Tiles begin at multiples of it, so none straddles two blocks of keys."""
