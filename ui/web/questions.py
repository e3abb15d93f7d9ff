"""Parses query strings within bounds, before a request is executed."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...client.admin import Admin
from ...wire.identifiers import TopicPartition
from .. import documents
from ..facts import ClusterFacts
from ..record_reading import read_records
from ..window import day_time_ms

LIMIT = 50
OFFSET_MAX = 2**63 - 1
ISOLATIONS = ("read_committed", "read_uncommitted")


async def records_asked(
    admin: Admin, key: TopicPartition, query: Mapping[str, str]
) -> dict[str, Any]:
    """Read the records of a partition that a query string requests.

    Raises ValueError with a message if the query is invalid.
    """
    isolation = query.get("isolation") or "read_uncommitted"
    if isolation not in ISOLATIONS:
        raise ValueError(f"isolation is one of {', '.join(ISOLATIONS)}")
    time_ms = _time_ms(query.get("time", ""))
    offset = None if time_ms is not None else _number("offset", query.get("offset", ""))
    return await read_records(
        admin,
        key,
        offset=offset,
        time_ms=time_ms,
        is_committed=isolation == "read_committed",
        limit=_number("limit", query.get("limit", "")) or LIMIT,
    )


def partition_asked(query: Mapping[str, str]) -> int | None:
    """Return the partition number in a query, or None without one.

    Raises ValueError for a wrong number.
    """
    return _number("partition", query.get("partition", ""))


def events_about(facts: ClusterFacts, subject: str, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the document of the events about one group or transactional id."""
    found = documents.events(facts, 0, limit=len(facts.events))
    about = [e for e in found["events"] if e["subject"] == subject and e["kind"] in kinds]
    return {**found, "events": about}


def _number(name: str, text: str) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdecimal() or int(text) > OFFSET_MAX:
        raise ValueError(f"{name} is a whole number of 0 or more, not {text[:40]!r}")
    return int(text)


def _time_ms(text: str) -> int | None:
    found = day_time_ms(text)
    if found is None and text.strip():
        raise ValueError(f"time looks like 2026-01-31T14:03, not {text[:40]!r}")
    return found
