"""The topics of the cluster as consumer groups see them, and when they have changed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ...metadata.cluster_model import Changes


class SubscribedTopic(Protocol):
    """A topic, as far as groups ask."""

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
    """Topics that no metadata stand behind; none, if none are given."""

    topics: Topics = field(default_factory=dict[str, SubscribedTopic])


@dataclass(slots=True, eq=False)
class KnownTopics:
    """All topics. `version` rises when topics may have changed, `creations` when some have come."""

    source: TopicSource = field(default_factory=ListedTopics)
    version: int = 0
    creations: int = 0

    @property
    def by_name(self) -> Topics:
        return self.source.topics

    def note(self, changes: Changes) -> None:
        """Have each group compare its topics with those there are now, if some have changed."""
        if changes.topics_created or changes.topics_deleted or changes.partitions_changed:
            self.version += 1
            self.creations += bool(changes.topics_created)
