"""Carry out textbook algorithms by hand: the task `clrs`."""
