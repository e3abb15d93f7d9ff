"""The subjects of a request, which are its topics, groups and transactional ids."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from ....wire.messages.api_keys import FIND_COORDINATOR
from ....wire.messages.schema import NO_UUID
from ....wire.messages.schema_decoder import Message

TOPIC_IDS_MAX = 100_000
GROUP_KEY, TRANSACTION_KEY = 0, 1
_TOPIC_LISTS = frozenset(("topics", "v3_and_below_topics", "forgotten_topics"))
_TOPIC_FIELDS = ("name", "topic", "topic_name")
_GROUP_LISTS = frozenset(("groups", "groups_names", "group_ids"))
_TRANSACTIONAL_IDS = frozenset(("transactional_id", "v3_and_below_transactional_id"))
_NESTED = frozenset(("groups", "transactions"))  # with items that have topics and ids, too


class TopicNames(dict[bytes, str]):
    """The names of topic ids, learned from the answers to Metadata that the proxy forwards."""

    def learn(self, topics: Any) -> None:
        for topic in topics or ():
            topic_id, name = getattr(topic, "topic_id", NO_UUID), topic.name
            if name and topic_id != NO_UUID and (topic_id in self or len(self) < TOPIC_IDS_MAX):
                self[topic_id] = name


@dataclass(frozen=True, slots=True)
class Subjects:
    """The topics, groups and transactional ids that a request names.

    A topic id without a known name is `id:` and the id in hex.
    """

    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    transactional_ids: frozenset[str] = frozenset()


def subjects_of(api_key: int, body: Any, names: TopicNames) -> Subjects:
    """Return the topics, groups and transactional ids of a decoded request."""
    topics, groups, ids = set[str](), set[str](), set[str]()
    if api_key == FIND_COORDINATOR:
        found = {GROUP_KEY: groups, TRANSACTION_KEY: ids}.get(getattr(body, "key_type", GROUP_KEY))
        keys: list[str] = getattr(body, "coordinator_keys", None) or [getattr(body, "key", "")]
        if found is not None:
            found.update(key for key in keys if key)
        return Subjects(groups=frozenset(groups), transactional_ids=frozenset(ids))
    _collect(body, names, topics, groups, ids)
    return Subjects(frozenset(topics), frozenset(groups), frozenset(ids))


def fields_of(message: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each field of a message, for kio's schemas and our own codecs."""
    if isinstance(message, Message):
        for name in type(message).__slots__:
            yield name, getattr(message, name)
    elif is_dataclass(message) and not isinstance(message, type):
        for one in fields(message):
            yield one.name, getattr(message, one.name)
    else:
        # A NamedTuple. Numbers, texts and plain tuples (aborted transactions) have no fields.
        for name in getattr(message, "_fields", ()):
            yield name, getattr(message, name)


def _collect(
    message: Any, names: TopicNames, topics: set[str], groups: set[str], ids: set[str]
) -> None:
    for name, value in fields_of(message):
        if not value:
            continue
        if name in _TRANSACTIONAL_IDS:
            ids.add(value)
        elif name == "transactional_ids":
            ids.update(value)
        elif name == "group_id":
            groups.add(value)
        elif name == "topic_names":  # of DeleteTopics
            topics.update(value)
        elif name in _TOPIC_LISTS:
            topics.update(filter(None, (_topic_of(topic, names) for topic in value)))
        elif name in _GROUP_LISTS and isinstance(value[0], str):
            groups.update(value)
        elif name in _NESTED:
            for item in value:
                _collect(item, names, topics, groups, ids)


def _topic_of(topic: Any, names: TopicNames) -> str | None:
    for field in _TOPIC_FIELDS:
        if name := getattr(topic, field, None):
            return name
    topic_id: bytes = getattr(topic, "topic_id", None) or NO_UUID
    return None if topic_id == NO_UUID else names.get(topic_id, f"id:{topic_id.hex()}")
