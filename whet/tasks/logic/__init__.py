"""Puzzles with one solution, proved: zebra, ordering, knights, graph_logic, zebralogic, arc. One
file a task."""
