"""The topics of the cluster as consumer groups see them, and a version of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ...metadata.cluster_model import Changes


class SubscribedTopic(Protocol):
    """A topic, as groups use it."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Collection[object]: ...


Topics = Mapping[str, SubscribedTopic]  # by name


class TopicSource(Protocol):
    """The metadata of the cluster."""

    @property
    def topics(self) -> Topics: ...


@dataclass(frozen=True, slots=True)
class ListedTopics:
    """Topics without metadata behind them; none by default."""

    topics: Topics = field(default_factory=dict[str, SubscribedTopic])


@dataclass(slots=True, eq=False)
class KnownTopics:
    """All topics. `version` rises when topics may have changed, `creations` with new topics."""

    source: TopicSource = field(default_factory=ListedTopics)
    version: int = 0
    creations: int = 0

    @property
    def by_name(self) -> Topics:
        return self.source.topics

    def note(self, changes: Changes) -> None:
        """Have each group compare its topics again, if any have changed."""
        if changes.topics_created or changes.topics_deleted or changes.partitions_changed:
            self.version += 1
            self.creations += bool(changes.topics_created)
