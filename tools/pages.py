"""Pages of docs and results that code writes in part: what stands between ``<!-- made: NAME -->`` and ``<!-- end -->``.

``output`` is what the Python block before it prints; any other name is that of a function which the page's script
hands over. The Python blocks of a page share their names, as the cells of a notebook do.
"""

from __future__ import annotations

import argparse
import difflib
import io
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from evodrop.lab.store import write_whole

__all__ = ["parser_for", "renew", "settle", "table"]

Blocks = Mapping[str, Callable[[], str] | None]  # None: the block is known, but stays as it is
MARKED = re.compile(
    r"(?:```python\n(?P<code>(?:(?!```).)*)```\n+)?<!-- made: (?P<name>\S+) -->\n(?P<body>.*?)<!-- end -->",
    flags=re.DOTALL,
)


def parser_for(page: Path) -> argparse.ArgumentParser:
    """The arguments that every script of a page takes."""
    name = f"{page.parent.name}/{page.name}"
    parser = argparse.ArgumentParser(description=f"Renew or check what is computed in {name}.")
    parser.add_argument("page", nargs="?", type=Path, default=page, help=f"{name} unless another is named")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a block is out of date")
    return parser


def renew(page: Path, blocks: Blocks, check: bool) -> int:
    """Write the page again, or only compare; the exit code of the script."""
    if not page.is_file():
        raise SystemExit(f"there is no page {str(page)!r}")
    return settle(page, renewed(page.read_text(encoding="utf-8"), blocks), check)


def settle(path: Path, new: str, check: bool) -> int:
    """Show what differs from the page, and write it unless it is only to be checked; gives the exit code.

    Args:
        path: of the page.
        new: what the code gives now.
        check: write nothing, and fail if the page is out of date.
    """
    old = path.read_text(encoding="utf-8")
    difference = difflib.unified_diff(old.splitlines(), new.splitlines(), "the page", "the code", lineterm="")
    print("\n".join(difference) or "all of the page is what the code gives")
    if new == old:
        return 0
    if check:
        print(f"the page is out of date; `python {sys.argv[0]}` renews it", file=sys.stderr)
        return 1
    write_whole(path, new.encode())
    return 0


def renewed(page: str, blocks: Blocks) -> str:
    """The page with every block as the code gives it now."""
    scope: dict[str, Any] = {}

    def block(match: re.Match[str]) -> str:
        body = body_of(match["name"], match["code"], scope, blocks)
        if body is None:
            return match[0]
        return f"{match[0][: match.start('body') - match.start()]}\n{body}\n\n<!-- end -->"

    return MARKED.sub(block, page)


def body_of(name: str, code: str | None, scope: dict[str, Any], blocks: Blocks) -> str | None:
    """The text of a block, or None if it stays as it is."""
    if name == "output" and code is not None:
        return output(code, scope)
    if name not in blocks:
        known = ", ".join(("output (after a Python block)", *blocks))
        raise SystemExit(f"the page has a block {name!r}, but a block is one of {known}")
    make = blocks[name]
    return None if make is None else make()


def output(code: str, scope: dict[str, Any]) -> str:
    """What a Python block of the page prints; its names stay in the scope."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "a block of the page", "exec"), scope)
    return f"```text\n{printed.getvalue().rstrip()}\n```"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], numbers: bool = False) -> str:
    """A Markdown table; with ``numbers`` all columns but the first are numbers, and stand to the right."""
    rule = ["---"] + ["--:" if numbers else "---"] * (len(head) - 1)
    escaped = {ord("|"): "\\|", ord("\N{NO-BREAK SPACE}"): " "}
    lines = [[str(cell).translate(escaped) for cell in row] for row in (head, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))
