"""The view Faults, for the nodes of a cluster on this machine, without I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...proof.pages.markup import Child, Html, element, joined
from ...proof.pages.parts import section, state, table
from .frame import PageFrame, page
from .now import recent_events

OF_STATE = {
    "down": ("start",),
    "paused": ("resume", "kill"),
}
RUNNING = ("kill", "stop", "pause", "cut", "slow")
BY_ROLE = ("kill", "stop", "pause", "cut", "slow")
ABOUT = {
    "kill": "SIGKILL",
    "stop": "SIGTERM: it moves its leaders away first",
    "pause": "SIGSTOP: it holds its connections and answers nothing",
    "cut": "no other node hears it; clients do",
    "slow": "the other nodes hear it 200 ms late",
    "start": "on the same data",
    "resume": "SIGCONT",
}
Document = Mapping[str, Any]


def faults_page(frame: PageFrame, cluster: Document, events: Document, load: str) -> str:
    """Return the view Faults. `load` is a sentence about the page's load, or ""."""
    return page(
        frame,
        "Faults",
        _nodes(cluster["nodes"]),
        _by_role(),
        _load(load),
        recent_events(events, 12),
    )


def _nodes(nodes: Sequence[Document]) -> Html:
    rows: list[list[Child]] = []
    for node in nodes:
        kinds = OF_STATE.get(node["state"], RUNNING)
        buttons = [joined(_button(kind, str(node["node"])), " ") for kind in kinds]
        rows.append([str(node["node"]), state(node["state"]), node.get("faults") or "-", buttons])
    body = table("Nodes", ("Node", "State", "Its links", "Do"), rows, empty="none is known")
    mend = element(
        "form",
        element("input", type="hidden", name="kind", value="heal"),
        element("button", "Heal everything"),
        element("span", " starts stopped nodes, resumes paused nodes, and restores all links"),
        method="post",
        action="/fault",
    )
    words = element("p", "; ".join(f"{kind}: {about}" for kind, about in ABOUT.items()))
    return section("nodes", "Nodes", body, mend, words)


def _button(kind: str, target: str) -> Html:
    return element(
        "form",
        element("input", type="hidden", name="kind", value=kind),
        element("input", type="hidden", name="target", value=target),
        element("button", kind, aria_label=f"{kind} node {target}"),
        method="post",
        action="/fault",
        class_="one",
    )


def _by_role() -> Html:
    form = element(
        "form",
        element(
            "select",
            [element("option", kind) for kind in BY_ROLE],
            name="kind",
            id="kind",
            aria_label="What to do",
        ),
        element("label", " the node that is ", for_="target"),
        element("input", id="target", name="target", required=True, placeholder="leader:orders/0"),
        element("button", "Do it"),
        method="post",
        action="/fault",
    )
    words = element(
        "p",
        "A role is controller, leader:TOPIC/PARTITION, group:ID (its coordinator), txn:ID (its"
        " coordinator) or random.",
    )
    title = element("h2", "By role", id="role-title")
    return element("section", title, form, words, aria_labelledby="role-title")


def _load(words: str) -> Html:
    form = element(
        "form",
        element("input", type="hidden", name="kind", value="load"),
        element("button", "Write for a minute"),
        method="post",
        action="/fault",
    )
    about = "Transactions of ten records each, to the topic oncelog-load, as fast as 20 a second."
    return section(
        "load", "A load", element("p", words or "No load is running."), form, about=about
    )
