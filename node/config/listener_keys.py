"""The keys that a listener may have a value of its own of: `listener.name.NAME.KEY` (KIP-103)."""

from dataclasses import dataclass, fields

from .keys import INT, at_least, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The typed values of these keys, for all listeners that do not say otherwise."""

    max_connections: int = setting(
        "max.connections", INT, "2000",
        "Connections at a time; one more takes the place of one without a request, or is closed. "
        "A listener may have a smaller limit of its own.",
        at_least(1), kafka_default="2147483647",
    )  # fmt: skip


LISTENER_ATTRIBUTES = {each.metadata["key"].name: each.name for each in fields(ListenerSettings)}
