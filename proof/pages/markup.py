"""HTML that escapes automatically, so text of clusters cannot become markup, without I/O.

`element` escapes every child and every attribute value that is not `Html` already. Only this module
creates `Html`.
"""

from collections.abc import Iterable
from html import escape

from ...wire.printable import printable

_VOID = frozenset(("input", "link", "meta", "br", "hr"))


class Html(str):
    """A text that is HTML already, and is not escaped again."""

    __slots__ = ()


Child = Html | str | int | float | None | Iterable["Child"]
NOTHING = Html("")


def element(tag: str, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """Return an HTML element with these children and attributes.

    The attribute `class` is given as `class_`, and `-` in a name as `_`. An attribute that is None
    or False is left out.
    """
    found = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{found}>")
    return Html(f"<{tag}{found}>{joined(*children)}</{tag}>")


def joined(*children: Child) -> Html:
    """Return these children as HTML, one after the other."""
    return Html("".join(map(_child, children)))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return escape(printable(child))
    if isinstance(child, (int, float)):
        return escape(str(child))
    return "".join(map(_child, child))


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(printable(str(value)))}"'
