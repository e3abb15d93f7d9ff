"""The topics of the cluster for consumer groups, with a version that rises with changes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ...metadata.cluster_model import Changes


class SubscribedTopic(Protocol):
    """The properties of a topic that groups use."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Collection[object]: ...


Topics = Mapping[str, SubscribedTopic]  # by topic name


class TopicSource(Protocol):
    """The part of the cluster's metadata that groups use."""

    @property
    def topics(self) -> Topics: ...


@dataclass(frozen=True, slots=True)
class ListedTopics:
    """A fixed list of topics for tests, empty by default."""

    topics: Topics = field(default_factory=dict[str, SubscribedTopic])


@dataclass(slots=True, eq=False)
class KnownTopics:
    """All topics, with two counters of changes.

    `version` rises when topics may have changed, and `creations` rises with each creation of
    topics.
    """

    source: TopicSource = field(default_factory=ListedTopics)
    version: int = 0
    creations: int = 0

    @property
    def by_name(self) -> Topics:
        return self.source.topics

    def note(self, changes: Changes) -> None:
        """Raise the versions after changes of topics, so that groups compare their topics again."""
        if changes.topics_created or changes.topics_deleted or changes.partitions_changed:
            self.version += 1
            self.creations += bool(changes.topics_created)
