"""``python -m evodrop`` is the command ``evodrop``."""

from evodrop.cli import main

if __name__ == "__main__":
    main()
