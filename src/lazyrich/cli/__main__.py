"""``python -m lazyrich.cli``."""

from lazyrich.cli import main

main()
