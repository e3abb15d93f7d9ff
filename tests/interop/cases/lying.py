"""Requests with batches that have false values in their headers."""

from ...lying_batches import lying_batches
from ..raw_peer import RawPeer
from .log import T0, Scenario


def produce_lying_batches(peer: RawPeer, version: int) -> Scenario:
    """Produce each batch with a false header to a partition of its own."""
    topic = f"lying-{version}"
    lies = lying_batches(T0)
    peer.create_topic(topic, partitions=len(lies))
    for index, lie in enumerate(lies):
        yield f"a lie: {lie.name}", peer.produce(version, topic, lie.data, index=index)
