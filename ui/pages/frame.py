"""The frame of every view without I/O, with head, navigation, data age, and missing parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...proof.pages.document import SERVED_ICON, SERVED_STYLE, document, masthead
from ...proof.pages.markup import NOTHING, Child, Html, element, joined
from ...proof.pages.parts import clock, duration

VIEWS = (
    ("/", "Now"),
    ("/topics", "Topics"),
    ("/transactions", "Transactions"),
    ("/groups", "Groups"),
    ("/timeline", "Timeline"),
)
FAULTS = (("/faults", "Faults"),)
MODES = {
    (False, False): "read-only",
    (False, True): "may abort transactions",
    (True, False): "may do faults",
    (True, True): "may do faults, abort transactions",
}
RELOAD_S = 5  # where there is no JavaScript


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """The common contents of all views at one moment.

    `not_exposed` are sentences on missing parts.
    """

    address: str
    cluster_name: str
    now_ms: int
    as_of_ms: int
    can_write: bool = False
    has_faults: bool = False
    not_exposed: Sequence[str] = ()
    silent: Mapping[str, str] | None = None
    is_live: bool = True


def page(frame: PageFrame, title: str, *sections: Child, heading: Child = None) -> str:
    """Return the HTML document of a view with the frame around its sections.

    `heading` replaces `title` as the heading of the view.
    """
    links = [
        element("a", words, href=address, aria_current="page" if _is_at(frame, address) else None)
        for address, words in (*VIEWS, *(FAULTS if frame.has_faults else ()))
    ]
    mode = element("span", MODES[frame.has_faults, frame.can_write], class_="mode")
    header = masthead(frame.cluster_name, links, mode, _age(frame))
    main = element(
        "main",
        element("h1", heading if heading is not None else title),
        _silent(frame),
        *sections,
        _not_exposed(frame),
        id="content",
        tabindex="-1",
    )
    reload = element("meta", http_equiv="refresh", content=str(RELOAD_S))
    head = (
        SERVED_STYLE,
        SERVED_ICON,
        element("noscript", reload) if frame.is_live else NOTHING,
        element("script", src="/static/live.js", defer=True),
    )
    return document(title, header, main, *head, data_live="yes" if frame.is_live else "no")


def message(title: str, *paragraphs: Child) -> str:
    """Return a small page without navigation, for a refusal or an error."""
    words = [element("p", each) for each in paragraphs]
    main = element("main", element("h1", title), words, id="content")
    return document(title, None, main, SERVED_STYLE)


def welcome(address: str) -> str:
    """Return a page that sends the browser on to `address`, which does not contain the token.

    The browser's next request comes from this page, so it includes the cookie that the browser got
    with this page.
    """
    go = element("meta", http_equiv="refresh", content=f"0;url={address}")
    head = element(
        "head", element("meta", charset="utf-8"), go, SERVED_ICON, element("title", "oncelog")
    )
    body = element("body", element("p", element("a", "Go on", href=address)))
    return "<!doctype html>" + element("html", head, body, lang="en")


def _is_at(frame: PageFrame, address: str) -> bool:
    if address == "/":
        return frame.address == "/"
    return frame.address == address or frame.address.startswith((f"{address}/", f"{address}?"))


def _age(frame: PageFrame) -> Html:
    if not frame.as_of_ms:
        return element("span", "nothing is known yet", class_="age", id="age", role="status")
    return element(
        "span",
        "as of ",
        clock(frame.as_of_ms),
        " · ",
        element("span", duration(max(0, frame.now_ms - frame.as_of_ms)), class_="since"),
        " old",
        class_="age",
        id="age",
        data_as_of_ms=str(frame.as_of_ms),
    )


def _silent(frame: PageFrame) -> Html:
    items = [
        element("li", element("strong", part), f": {why}")
        for part, why in (frame.silent or {}).items()
    ]
    inside = (
        joined(element("p", "■ No fresh answer about:"), element("ul", items)) if items else NOTHING
    )
    kind = "trouble" if items else "trouble unseen"
    return element("div", inside, id="silent", data_live=True, class_=kind, role="status")


def _not_exposed(frame: PageFrame) -> Html:
    items = [element("li", sentence) for sentence in frame.not_exposed]
    if not items:
        return NOTHING
    heading = element("h2", "Not shown here", id="not-exposed-title")
    return element(
        "section",
        heading,
        element("ul", items),
        class_="hidden-data",
        aria_labelledby="not-exposed-title",
    )
