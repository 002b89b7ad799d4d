"""Small tasks for trying a model or a recipe: countdown, arithmetic, last_letter, reverse."""
