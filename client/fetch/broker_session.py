"""The client's state of a fetch session with one broker (KIP-227).

In a session, a fetch names only the partitions that have changed since the last fetch. The file
does no I/O. The next fetch names all partitions and opens another session in four cases: after a
refusal, after a request with an unknown outcome, if the broker has opened no session, and if topics
are now named in another way. That fetch also names the old session, which the broker then closes.
"""

from collections.abc import Iterable, Mapping

from ...wire.errors import ErrorCode
from ...wire.identifiers import TopicPartition
from ...wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

INITIAL_EPOCH, FINAL_EPOCH, EPOCH_MAX = 0, -1, 2**31 - 1
SESSIONS_FROM = 7  # the first version of Fetch that has them


class BrokerSession:
    """The client's state of a fetch session with one broker, for one request at a time.

    Each request is `prepare`, then `answered` unless the request has failed.
    """

    __slots__ = ("_epoch", "_is_open", "_known", "_named", "_session_id")

    def __init__(self) -> None:
        self._session_id, self._epoch = 0, INITIAL_EPOCH
        self._is_open = False  # whether both sides agree on the session's partitions
        self._known: dict[TopicPartition, FetchPartition] = {}
        self._named: Mapping[str, bytes] | None = None  # the topic ids in use

    def prepare(
        self,
        request: FetchRequest,
        wanted: dict[TopicPartition, FetchPartition],
        topic_ids: Mapping[str, bytes] | None,
    ) -> None:
        """Write the session and the changed partitions into the Fetch request.

        topic_ids: the ids of topics, or None where names are used.
        """
        known = self._known if self._is_open and self._named is topic_ids else None
        request.session_id = self._session_id
        if known is None:
            request.session_epoch = self._epoch = INITIAL_EPOCH
            named = wanted
        else:
            request.session_epoch = self._epoch
            named = {key: each for key, each in wanted.items() if known.get(key) != each}
            gone = (key for key in known if key not in wanted)
            request.forgotten_topics = _forgotten(gone, topic_ids)
        request.topics = by_topic(named, topic_ids)
        self._known, self._named = wanted, topic_ids
        self._is_open = False  # until the answer

    def answered(self, response: FetchResponse) -> None:
        """Store the session id and epoch that follow from this answer."""
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = 0
            return
        self._session_id = response.session_id
        self._is_open = response.session_id != 0
        self._epoch = self._epoch + 1 if self._epoch < EPOCH_MAX else 1


def by_topic(
    wanted: Mapping[TopicPartition, FetchPartition], topic_ids: Mapping[str, bytes] | None
) -> list[FetchTopic]:
    """Group partitions by topic, in the form of a Fetch request."""
    topics: dict[str, FetchTopic] = {}
    for (name, _), partition in wanted.items():
        topic = topics.get(name)
        if topic is None:
            topic_id = None if topic_ids is None else topic_ids[name]
            topic = topics[name] = FetchTopic(name, topic_id, [])
        topic.partitions.append(partition)
    return list(topics.values())


def _forgotten(
    gone: Iterable[TopicPartition], topic_ids: Mapping[str, bytes] | None
) -> list[ForgottenTopic]:
    topics: dict[str, ForgottenTopic] = {}
    for name, index in gone:
        topic = topics.get(name)
        if topic is None:
            topic_id = None if topic_ids is None else topic_ids[name]
            topic = topics[name] = ForgottenTopic(name, topic_id, [])
        topic.partitions.append(index)
    return list(topics.values())
