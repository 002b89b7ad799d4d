"""What `bench/fuzz.py` is made of: rows, ways to spoil their answers, and texts."""
