"""The HTML document that all pages share, with head, skip link, navigation and content.

The file does no I/O.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from .markup import Child, Html, element

SERVED_STYLE = element("link", rel="stylesheet", href="/static/style.css")
SERVED_ICON = element("link", rel="icon", href="/static/icon.svg", type="image/svg+xml")
STYLE_FILE = Path(__file__).parent / "style.css"


def document(title: str, header: Child, main: Child, *head: Child, **attributes: str) -> str:
    """Return a whole HTML document with this header and this main part.

    head: further elements for `<head>`. attributes: the attributes of `<body>`.
    """
    first = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width,initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} · oncelog"),
        *head,
    )
    body = element("body", header, main, **attributes)
    return "<!doctype html>" + element("html", first, body, lang="en")


def masthead(about: str, links: Sequence[Html], *others: Child) -> Html:
    """Return the header of a page: the name of its cluster or run, and links to other views."""
    return element(
        "header",
        element("a", "Skip to the content", href="#content", class_="skip"),
        element("strong", "oncelog"),
        element("span", about, class_="cluster", title=about),
        element("nav", links, aria_label="Views"),
        *others,
    )


@cache
def own_style() -> list[Html]:
    """Return the style for a page in a file.

    Its content security policy forbids the page to load or run anything.
    """
    style = STYLE_FILE.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return [
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("style", Html(style)),
    ]
