"""A transactional producer that sends raw requests, for scenarios of other APIs."""

import time
from typing import Any

from oncelog.wire.errors import ErrorCode

from ..waiting import until
from .cases.log import batch
from .raw_peer import INIT_PRODUCER_ID, RawPeer

FETCH_GROUP, FIND_COORDINATOR = 9, 10
ADD_PARTITIONS, END, DESCRIBE_TRANSACTIONS = 24, 26, 65
TIMEOUT_MS = 60_000
TRANSIENT = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Owner:
    """A producer with a transactional id, which sends raw requests with its id and epoch."""

    def __init__(self, peer: RawPeer, name: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.peer, self.name = peer, name
        wait_for_coordinator(peer, 1, name)
        values = {"transactional_id": name, "transaction_timeout": timeout_ms}
        answer = self._insist(lambda: peer.ask_raw(INIT_PRODUCER_ID, 5, values))
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    @staticmethod
    def _insist(ask: Any) -> Any:
        deadline = time.monotonic() + 20
        while (answer := ask()).error_code in TRANSIENT:
            assert time.monotonic() < deadline, answer
            time.sleep(0.01)
        assert answer.error_code == 0, answer
        return answer

    @property
    def fields(self) -> dict[str, Any]:
        """Return the request fields with the transactional id, the producer id and the epoch."""
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

    def add(self, *topics: tuple[str, list[int]], version: int = 3, **fields: Any) -> Any:
        values = {f"v3_and_below_{name}": value for name, value in (self.fields | fields).items()}
        rows = [{"name": name, "partitions": partitions} for name, partitions in topics]
        return self.peer.ask(ADD_PARTITIONS, version, values | {"v3_and_below_topics": rows})

    def write(self, topic: str, count: int = 1, sequence: int = 0, version: int = 11) -> Any:
        records = batch(
            count, transactional=True, producer_id=self.producer_id,
            producer_epoch=self.producer_epoch, base_sequence=sequence,
        )  # fmt: skip
        return self.peer.produce(version, topic, records, transactional_id=self.name)

    def end(self, is_commit: bool, version: int = 3) -> Any:
        answer = self.peer.ask(END, version, self.fields | {"committed": is_commit})
        self.settle()
        return answer

    def settle(self) -> None:
        """Wait until all markers of the producer's transaction are written."""
        deadline = time.monotonic() + 20
        values = {"transactional_ids": [self.name]}
        while True:
            (state,) = self.peer.ask_raw(DESCRIBE_TRANSACTIONS, 0, values).transaction_states
            if not state.transaction_state.startswith("Prepare"):
                return
            assert time.monotonic() < deadline, f"{self.name} stays in {state}"
            time.sleep(0.005)

    def described(self) -> Any:
        """Return the answer to DescribeTransactions for this id, in comparable form."""
        return in_order(self.peer.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [self.name]}))


def in_order(answer: Any) -> Any:
    """Sort the partitions in an answer to DescribeTransactions, and return the answer."""
    for state in answer["transaction_states"]:
        for topic in state["topics"]:
            topic["partitions"].sort()
    return answer


def wait_for_coordinator(peer: RawPeer, kind: int, key: str) -> None:
    """Wait until a coordinator exists and has loaded its state."""
    values, topics = {"key_type": kind, "key": key}, {"group_id": key, "topics": []}
    until(lambda: not peer.ask_raw(FIND_COORDINATOR, 3, values).error_code, f"no owner of {key}")
    if kind == 0:
        until(
            lambda: peer.ask_raw(FETCH_GROUP, 5, topics).error_code not in TRANSIENT,
            f"the group {key} is not loaded",
        )
