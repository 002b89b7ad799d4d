"""Small tasks to try a model or a recipe on: countdown, arithmetic, last_letter, reverse."""
