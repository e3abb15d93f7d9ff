"""The table of docs/security.md with the messages of clients and brokers about refused logins."""

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[3] / "docs" / "security.md"
KEPT = Path(__file__).parents[1] / "recorded" / "logins.json"
BEGIN = "<!-- Made by tests/interop/secured/record_logins.py. -->\n"
END = "<!-- The end of what it makes. -->\n"
WORDS_MAX = 220


def recorded() -> dict[str, Any]:
    """Return the recorded messages of clients and brokers."""
    return json.loads(KEPT.read_text(encoding="utf-8"))


def table(said: dict[str, Any]) -> str:
    """Return a table row for each fault and client, and for the broker's log after the clients."""
    rows = [
        "| mistake | client | with oncelog | with Apache Kafka 4.4, if its text differs |",
        "|---|---|---|---|",
    ]
    names = sorted(set(said) - {"broker"})
    first_ways: dict[str, str] = {}
    for case in said["broker"]:
        first_ways.setdefault(case.partition(":")[0], case)
    for wrong, case in sorted(first_ways.items()):
        for who in (*names, "broker"):
            ours, kafka = (_cell(said[who][case][side]) for side in ("oncelog", "kafka"))
            label = "the broker's log" if who == "broker" else who
            way = case.partition(": ")[2]
            shown = f"{wrong} ({way})" if who == names[0] else ""
            rows.append(f"| {shown} | {label} | {ours} | {'' if kafka == ours else kafka} |")
    return "\n".join(rows) + "\n"


def _cell(words: str) -> str:
    short = words if len(words) <= WORDS_MAX else f"{words[: WORDS_MAX - 3]}..."
    return short.replace("|", "\\|").replace("<", "&lt;") or "nothing"


def written(page: str, said: dict[str, Any]) -> str:
    """Return the page with its table of messages replaced by the table of `said`."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(said)}\n{END}{after}"


def write_table() -> None:
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), recorded()), encoding="utf-8")
