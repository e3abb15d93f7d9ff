"""Late bytes sit on an older connection: the fence against KAFKA-17754 for V1 clients.

All transactions of a V1 producer share producer id and epoch, so an EndTxn that was delayed on
connection A, and repeated on B, would end the next transaction. One TCP connection delivers in
order, and a client that reconnects does not go back; so of requests with the same identity the
one on the newest connection counts, and one on an older connection is not executed: the
connection is closed, which every client takes for a reason to ask again.

A coordinator that has just been elected knows no connections. It serves only those accepted
after its election, and those on which an id got its identity afterwards: nothing that was sent
before bears it. (A request may also have waited in the kernel of a paused broker: that is
judged by its age, see `TransactionCoordinators.end_transaction`.)
"""

from ...wire.identifiers import Identity


class StaleConnection(Exception):
    """The request must not be executed: close its connection."""


class ConnectionFence:
    """Of one shard in one term. Connections are numbered in the order of their acceptance."""

    def __init__(self, newest_at_election: int) -> None:
        self._newest_at_election = newest_at_election
        self._newest: dict[str, tuple[Identity, int]] = {}

    def check(self, transactional_id: str, identity: Identity, connection_id: int) -> None:
        """Let a request of the id's current client pass. Raises StaleConnection."""
        known_identity, newest = self._newest.get(transactional_id, (None, 0))
        if known_identity == identity:
            if connection_id < newest:
                raise StaleConnection(
                    f"a late request of transactional id {transactional_id!r}: its producer "
                    "has a newer connection"
                )
        elif connection_id <= self._newest_at_election:
            raise StaleConnection(
                "a transactional request on a connection older than the coordinator's election"
            )
        self.note(transactional_id, identity, connection_id)

    def note(self, transactional_id: str, identity: Identity, connection_id: int) -> None:
        """The client of the id is this one now, and this is its connection."""
        self._newest[transactional_id] = (identity, connection_id)

    def remove(self, transactional_id: str) -> None:
        """Discard what is known of an id."""
        self._newest.pop(transactional_id, None)
