"""What was found, told to people: on one self-contained page, on the terminal, in event files.

===============  ============================================================================
``page``         the page; ``plots`` and ``sections`` are its parts, ``assets`` what it is made with
``markup``       HTML from Python, escaped by default
``cells``        the numbers of a table in words, for page and terminal alike
``tables``       the terminal
``tensorboard``  curves as event files
``reopening``    figures, verdicts and page from the records alone, at any time
===============  ============================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evodrop.experiments.report.page import make_page, write_report

__all__ = ["make_page", "write_report"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # when asked for: the terminal does not need the page
        from evodrop.experiments.report import page

        return getattr(page, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
