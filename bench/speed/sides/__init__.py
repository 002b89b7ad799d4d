"""One module a side: each runs as a child process that prepares itself once and then does a round
when told."""
