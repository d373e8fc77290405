"""Every number of docs/theory.md, computed again.

    python docs/theory.py                 renew the page
    python docs/theory.py --check         leave it alone; show what differs, and fail if anything does
    python docs/theory.py --data FOLDER   the blocks on real text too, from FOLDER/20news/train.svm.bz2 and
                                          FOLDER/reuters52/train.svm.bz2; without it they stay as they are

A block stands between ``<!-- numbers: NAME -->`` and ``<!-- end -->``. The name is that of a function of
``theory_blocks`` or ``theory_descent``; ``output`` is what the Python block before it prints. The Python blocks of the
page share their names, as the cells of a notebook do.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pages
import theory_blocks
import theory_descent

PAGE = Path(__file__).with_name("theory.md")
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
        theory_blocks.loudness,
        theory_blocks.filling,
        theory_blocks.rates,
    )
}
DATA_BLOCKS: dict[str, Callable[[Path], str]] = {"text": theory_blocks.text}
MARKED = re.compile(
    r"(?:```python\n(?P<code>(?:(?!```).)*)```\n+)?<!-- numbers: (?P<name>\S+) -->\n(?P<body>.*?)<!-- end -->",
    flags=re.DOTALL,
)


def renewed(page: str, folder: Path | None) -> str:
    """The page with every block as the code gives it now."""
    scope: dict[str, Any] = {}

    def block(match: re.Match[str]) -> str:
        body = body_of(match["name"], match["code"], scope, folder)
        if body is None:
            return match[0]
        return f"{match[0][: match.start('body') - match.start()]}\n{body}\n\n<!-- end -->"

    return MARKED.sub(block, page)


def body_of(name: str, code: str | None, scope: dict[str, Any], folder: Path | None) -> str | None:
    """The text of a block, or None if it stays as it is."""
    if name == "output" and code is not None:
        return output(code, scope)
    if name in DATA_BLOCKS:
        return None if folder is None else DATA_BLOCKS[name](folder)
    if name not in BLOCKS:
        known = ", ".join(("output (after a Python block)", *BLOCKS, *DATA_BLOCKS))
        raise SystemExit(f"the page has a block {name!r}, but a block is one of {known}")
    return BLOCKS[name]()


def output(code: str, scope: dict[str, Any]) -> str:
    """What a Python block of the page prints; its names stay in the scope."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, PAGE.name, "exec"), scope)
    return f"```text\n{printed.getvalue().rstrip()}\n```"


def main() -> int:
    parser = argparse.ArgumentParser(description="Renew or check the numbers of docs/theory.md.")
    parser.add_argument("page", nargs="?", type=Path, default=PAGE, help="docs/theory.md unless another is named")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a number is out of date")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="renew the blocks on real text from these files")
    options = parser.parse_args()
    if options.data is not None and (lacking := theory_blocks.lacking(options.data)):
        parser.error(f"--data: there is no file {str(lacking[0])!r}; the blocks on real text are made from it")
    if not options.page.is_file():
        parser.error(f"there is no page {str(options.page)!r}")
    return pages.settle(options.page, renewed(options.page.read_text(encoding="utf-8"), options.data), options.check)


if __name__ == "__main__":
    sys.exit(main())
