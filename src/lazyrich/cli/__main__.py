"""``python -m lazyrich.cli``."""

from lazyrich.cli import main

if __name__ == "__main__":
    main()
