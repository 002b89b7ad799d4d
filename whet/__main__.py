"""`python -m whet` is `whet`."""

from whet.cli import main

main()
