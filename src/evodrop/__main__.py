"""``python -m evodrop`` is the command ``evodrop``."""

from evodrop.lab.cli import main

if __name__ == "__main__":
    main()
