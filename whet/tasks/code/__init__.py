"""Programs that a model writes: the sandbox they run in, and the tasks that grade them."""
