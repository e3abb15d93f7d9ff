"""The fence against late requests on older connections of V1 clients (KAFKA-17754).

All transactions of a V1 producer share producer id and epoch. An EndTxn that was delayed on
connection A and repeated on connection B would therefore end the next transaction. A TCP connection
delivers in order, and a client that reconnects never returns to the old connection. Therefore a
request is not executed if a newer connection has sent a request with the same producer id and
epoch. The older connection is closed, and the client then sends the request again.

A newly elected coordinator does not know which connections its clients used before. If a connection
is older than this election, the coordinator accepts only requests with a producer id and epoch that
the coordinator itself has given to the client. No request from before the election can have these.
(A request may also have waited in the kernel of a paused broker, and is then judged by its age, see
`TransactionCoordinators.end_transaction`.)
"""

from ...wire.identifiers import Identity


class StaleConnection(Exception):
    """The error of a request that must not be executed, and whose connection must be closed."""


class ConnectionFence:
    """The fence of one shard in one term.

    Connections are numbered in the order in which the broker accepted them.
    """

    def __init__(self, newest_at_election: int) -> None:
        self._newest_at_election = newest_at_election
        self._newest: dict[str, tuple[Identity, int]] = {}

    def check(self, transactional_id: str, identity: Identity, connection_id: int) -> None:
        """Accept a request and record its client and connection, or raise StaleConnection."""
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
        """Record the current client of a transactional id, and its connection."""
        self._newest[transactional_id] = (identity, connection_id)

    def remove(self, transactional_id: str) -> None:
        """Remove the recorded client of a transactional id."""
        self._newest.pop(transactional_id, None)
