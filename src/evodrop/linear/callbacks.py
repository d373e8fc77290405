"""What watches a fit: scikit-learn's own callbacks, where it has them (from 1.9 on), and our progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """An older scikit-learn has no callbacks."""


__all__ = ["CallbackSupportMixin", "Watch", "progress_bar"]


class Watch:
    """A fit as scikit-learn's callbacks see it: one task, and in it one for each epoch or iteration.

    Args:
        estimator: the one that is fitted.
        most: how many inner tasks there are at most.
        told: what every call passes on: X, y, metadata.
    """

    def __init__(self, estimator: Any, most: int, **told: Any) -> None:
        self.told = {"estimator": estimator, **told}
        start = getattr(estimator, "_init_callback_context", None)
        self.fit = None if start is None else start(max_subtasks=most).call_on_fit_task_begin(**self.told)

    def step(self, name: str, fitted: Callable[[], dict[str, Any]]) -> bool:
        """An epoch or iteration is done; ``fitted`` gives what a fit that ended here would have. True asks to stop."""
        if self.fit is None:
            return False
        task = self.fit.subcontext(task_name=name).call_on_fit_task_begin(**self.told)
        return bool(task.call_on_fit_task_end(**self.told, reconstruction_attributes=fitted))

    def close(self) -> None:
        """The fit is done."""
        if self.fit is not None:
            self.fit.call_on_fit_task_end(**self.told, reconstruction_attributes={})


@contextmanager
def progress_bar(title: str, total: int, shown: bool) -> Iterator[Callable[[int, str], None]]:
    """A function that moves a bar on the terminal to ``done`` of ``total`` and writes a note beside it, if shown."""
    if not shown:
        yield lambda *_: None
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[note]}"),
    )
    with progress.Progress(*columns) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)
        bar.update(task, total=bar.tasks[task].completed)  # what ends early has come to its end
