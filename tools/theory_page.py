"""Every number of docs/theory.md, computed again.

    python tools/theory_page.py                 renew the page
    python tools/theory_page.py --check         leave it alone; show what differs, and fail if anything does
    python tools/theory_page.py --data FOLDER   the blocks on real text too, from FOLDER/20news/train.svm.bz2 and
                                          FOLDER/reuters52/train.svm.bz2; without it they stay as they are

The name of a block is that of a function of ``theory_blocks`` or ``theory_descent``; see ``pages`` for the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import theory_blocks
import theory_descent
from pages import parser_for, renew

PAGE = Path(__file__).parents[1] / "docs" / "theory.md"
BLOCKS: dict[str, Callable[[], str]] = {
    block.__name__: block
    for block in (
        theory_descent.proof,
        theory_descent.steps,
        theory_descent.worlds,
        theory_blocks.taylor,
        theory_blocks.kept,
        theory_blocks.tight,
        theory_blocks.sizes,
        theory_blocks.norms,
        theory_blocks.filling,
        theory_blocks.rates,
    )
}
DATA_BLOCKS: dict[str, Callable[[Path], str]] = {"text": theory_blocks.text}


def main() -> int:
    parser = parser_for(PAGE)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="renew the blocks on real text from these files")
    options = parser.parse_args()
    if options.data is not None and (lacking := theory_blocks.lacking(options.data)):
        parser.error(f"--data: there is no file {str(lacking[0])!r}; the blocks on real text are made from it")
    on_data = {name: options.data and partial(block, options.data) for name, block in DATA_BLOCKS.items()}
    return renew(options.page, {**BLOCKS, **on_data}, options.check)


if __name__ == "__main__":
    sys.exit(main())
