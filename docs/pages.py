"""What the scripts of these pages share: a page that was made again is compared with the old one, and written."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from evodrop.durable import write_whole

__all__ = ["settle"]


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
        print(f"the page is out of date; `python docs/{path.stem}.py` renews it", file=sys.stderr)
        return 1
    write_whole(path, new.encode())
    return 0
