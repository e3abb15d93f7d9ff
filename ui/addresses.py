"""The addresses of views, for names of topics, groups and transactional ids of any characters."""

from urllib.parse import quote

from ..wire.identifiers import TopicPartition

_PATH_STEPS = (".", "..", "")  # a browser would take these as steps of the path


def topic_address(topic: str) -> str:
    """Return the address of a topic's view."""
    return _named("/topics", topic)


def partition_address(key: TopicPartition) -> str:
    """Return the address of a partition's view."""
    return f"{_named('/topics', key[0])}/{key[1]}"


def records_address(key: TopicPartition, offset: int | None = None) -> str:
    """Return the address of the page with a partition's records, optionally from an offset."""
    query = "" if offset is None else f"?offset={offset}"
    return f"{partition_address(key)}/records{query}"


def transaction_address(transactional_id: str) -> str:
    """Return the address of a transactional id's view."""
    return _named("/transactions", transactional_id)


def group_address(group: str) -> str:
    """Return the address of a consumer group's view."""
    return _named("/groups", group)


def _named(folder: str, name: str) -> str:
    if not name.isprintable() or any(part in _PATH_STEPS for part in name.split("/")):
        return f"{folder}?name={quote(name, safe='')}"
    return f"{folder}/{quote(name, safe='')}"
