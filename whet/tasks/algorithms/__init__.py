"""Carry out textbook algorithms by hand: clrs. `runs` has the algorithms, `arrays` reads what they
print."""
