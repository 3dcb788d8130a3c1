"""``python -m apples``."""

from apples.cli.main import main

if __name__ == "__main__":
    main()
