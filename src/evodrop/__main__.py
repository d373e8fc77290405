"""``python -m evodrop`` is the command ``evodrop``."""

from evodrop.experiments.cli import main

if __name__ == "__main__":
    main()
