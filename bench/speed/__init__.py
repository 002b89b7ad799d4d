"""What the speed benches share: the work, the sides that do it, the limits of the machine, and the
tables."""
