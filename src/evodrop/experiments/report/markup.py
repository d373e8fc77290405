"""HTML from Python, escaped by default: what is not known to be HTML is text."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["Markup", "element", "join", "table"]


VOID = ("input",)  # elements that have no end


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | bool | None) -> Markup:
    """An element with attributes and children; a child that is no :class:`Markup` is text.

    An attribute that is True stands without a value, one that is False or None is left out. ``class_`` is class, and
    other underscores are hyphens.

    Examples:
        >>> element("p", "a < b, ", element("b", "c"), class_="note", hidden=True)
        '<p class="note" hidden>a &lt; b, <b>c</b></p>'
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{written}>")
    inside = "".join(child if isinstance(child, Markup) else html.escape(child) for child in children)
    return Markup(f"<{name}{written}>{inside}</{name}>")


def join(*parts: Markup) -> Markup:
    """Several pieces of HTML as one."""
    return Markup("".join(parts))


def _attribute(key: str, value: str | bool | None) -> str:
    key = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {key}" if value is True else f' {key}="{html.escape(value)}"'


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table whose first column names its rows.

    On a narrow screen the style sheet turns rows into cards, which show ``data-head`` before each cell; the roles keep
    it a table to a screen reader.
    """
    titles = [element("th", title, scope="col", role="columnheader") for title in head]
    body = [
        element(
            "tr",
            element("th", cells[0], scope="row", role="rowheader"),
            *(
                element("td", cell, role="cell", data_head=title)
                for title, cell in zip(head[1:], cells[1:], strict=True)
            ),
            role="row",
        )
        for cells in rows
    ]
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *titles, role="row"), role="rowgroup"),
        element("tbody", *body, role="rowgroup"),
        role="table",
    )
