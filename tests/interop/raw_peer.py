"""Send raw requests to a broker, and return answers that can be compared between brokers.

An answer becomes plain data, in nested dicts and lists by the names of the schema. Values that
differ between two clusters, such as addresses, ids and times, are replaced by a word for their
kind.
"""

import contextlib
import dataclasses
import socket
import time
from typing import Any

from oncelog.deploy.faults.protocol_proxy.bodies import decode_answer_body
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import (
    TOPIC_IDS_FROM,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)

from ..request_bodies import encode_request_body

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 18, 19, 22
CLOSED, SILENT = "the connection was closed", "no answer"
UNKNOWN_ID = bytes(range(100, 116))
ANSWER_TIMEOUT_S = 10.0
_SORTED_BY = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "resource_type",
    "resource_name",
    "partition_index",
    "partition",
    "partition_id",
    "index",
    "broker_id",
    "node_id",
    "replica_id",
    "api_key",
    "group_id",
    "group_instance_id",
    "transactional_id",
    "key",
)
_KINDS = {"host": "HOST", "port": "PORT", "cluster_id": "CLUSTER", "log_dir": "DIRECTORY"}
_POSITIVE = {"total_bytes": "BYTES", "usable_bytes": "BYTES", "producer_id": "A PRODUCER ID"}
_TIMES = {
    "log_append_time_ms",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
    "last_timestamp",
    "transaction_start_time",
}
_MESSAGES = {"error_message", "batch_index_error_message"}


class RawPeer:
    """A connection to one broker that sends frames and awaits each answer before the next."""

    def __init__(self, name: str, address: tuple[str, int]) -> None:
        self.name, self.address = name, address
        self.client_id = "differential"
        self.topic_ids: dict[str, bytes] = {}
        self._names_by_id: dict[bytes, str] = {}
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def another(self) -> "RawPeer":
        """Return another connection to the same broker."""
        return RawPeer(self.name, self.address)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # --- bytes

    def send_frame(self, frame: bytes) -> bytes | str:
        """Send a frame after its length.

        Return the answer's frame, or CLOSED or SILENT if the broker sends none.
        """
        return self.send_bytes(len(frame).to_bytes(4, "big", signed=True) + frame)

    def send_bytes(self, data: bytes, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes | str:
        """Send these bytes, and return the frame of one answer, or CLOSED or SILENT."""
        self.post_bytes(data)
        return self.await_answer(timeout_s)

    def post_bytes(self, data: bytes) -> None:
        """Send these bytes without waiting for an answer, which `await_answer` returns later."""
        with contextlib.suppress(ConnectionError):  # the missing answer will show the failure
            if self._socket is None:
                self._socket = socket.create_connection(self.address, 5)
            self._socket.settimeout(ANSWER_TIMEOUT_S)
            self._socket.sendall(data)

    def await_answer(self, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes | str:
        """Return the frame of the next answer, CLOSED, or SILENT after the timeout."""
        if self._socket is None:
            return CLOSED
        try:
            self._socket.settimeout(timeout_s)
            size = int.from_bytes(self._receive(4), "big")
            return self._receive(size)
        except TimeoutError:
            self.close()
            return SILENT
        except (ConnectionError, EOFError):
            self.close()
            return CLOSED

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < size:
            data = self._socket.recv(size - len(received))
            if not data:
                raise EOFError
            received += data
        return bytes(received)

    # --- messages

    def ask_body(
        self, api_key: int, version: int, body: bytes, *, reads_version: int | None = None
    ) -> Any:
        """Return the decoded answer to a request body, or CLOSED or SILENT.

        `reads_version` is the version of the answer, if it differs from that of the request.
        """
        self._correlation_id += 1
        header = encode_request_header(api_key, version, self._correlation_id, self.client_id)
        frame = self.send_frame(header + body)
        if isinstance(frame, str):
            return frame
        assert int.from_bytes(frame[:4], "big") == self._correlation_id, "answers out of order"
        answered = version if reads_version is None else reads_version
        return decode_answer_body(api_key, answered, memoryview(frame))

    def ask_raw(self, api_key: int, version: int, values: Any) -> Any:
        """Return the decoded answer to a request, without replaced values."""
        return self.ask_body(api_key, version, encode_request_body(api_key, version, values))

    def ask(self, api_key: int, version: int, values: Any) -> Any:
        """Return the answer to a request in comparable form."""
        return self.comparable(self.ask_raw(api_key, version, values))

    def produce(
        self, version: int, topic: str, records: Any, *, index: int = 0, acks: int = -1,
        transactional_id: str | None = None, topic_id: bytes | None = None,
    ) -> Any:  # fmt: skip
        """Send a Produce with `records`, the bytes of a batch, and return the comparable answer."""
        by_id = version >= TOPIC_IDS_FROM
        known_id = topic_id or self.topic_ids.get(topic, UNKNOWN_ID)
        wanted = ProduceTopic(
            None if by_id else topic,
            known_id if by_id else None,
            [ProducePartition(index, records)],
        )
        return self.ask(PRODUCE, version, ProduceRequest(transactional_id, acks, 5000, [wanted]))

    def fetch(self, version: int, topic: str, *partitions: FetchPartition, **fields: Any) -> Any:
        """Fetch from partitions of one topic, and return the comparable answer."""
        by_id = version >= TOPIC_IDS_FROM
        wanted = FetchTopic(
            None if by_id else topic,
            self.topic_ids.get(topic, UNKNOWN_ID) if by_id else None,
            list(partitions),
        )
        settings = {"max_wait_ms": 0, "min_bytes": 1, "topics": [wanted]} | fields
        return self.ask(FETCH, version, FetchRequest(**settings))

    # -- the state that cases start from

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic and wait until it can be written to."""
        values = {
            "timeout": 10000,
            "topics": [
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [
                        {"name": key.replace("_", "."), "value": value}
                        for key, value in configs.items()
                    ],
                }
            ],
        }
        (answer,) = self.ask_raw(CREATE_TOPICS, 7, values).topics
        assert answer.error_code in (0, 36), f"{self.name}: {name}: {answer.error_message}"
        self.learn(name, partitions)

    def learn(self, name: str, partitions: int = 1) -> None:
        """Wait until all partitions of a topic have available leaders, and keep the topic's id."""
        deadline = time.monotonic() + 10
        while True:
            (topic,) = self.ask_raw(
                METADATA, 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False}
            ).topics
            if topic.error_code == 0 and self._serves(name, partitions):
                break
            assert time.monotonic() < deadline, f"{self.name}: {name} does not come up"
            time.sleep(0.01)
        self.topic_ids[name] = topic.topic_id
        self._names_by_id[topic.topic_id] = name

    def _serves(self, name: str, partitions: int) -> bool:
        latest = [{"partition_index": i, "timestamp": -1} for i in range(partitions)]
        values = {"replica_id": -1, "topics": [{"name": name, "partitions": latest}]}
        (topic,) = self.ask_raw(LIST_OFFSETS, 5, values).topics
        return all(p.error_code == 0 for p in topic.partitions)

    def new_producer_id(self) -> int:
        deadline = time.monotonic() + 20
        while True:
            answer = self.ask_raw(
                INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout": 60000}
            )
            if answer.error_code == 0:
                return answer.producer_id
            assert time.monotonic() < deadline, f"{self.name}: error {answer.error_code}"
            time.sleep(0.1)

    def init_producer_id(
        self, version: int, name: str | None, pid: int = -1, epoch: int = -1, timeout: int = 60000
    ) -> Any:
        values = {
            "transactional_id": name,
            "transaction_timeout": timeout,
            "producer_id": pid,
            "producer_epoch": epoch,
        }
        return self.ask(INIT_PRODUCER_ID, version, values)

    # --- comparable answers

    def comparable(self, value: Any, name: str = "") -> Any:
        """Return a value as plain data, with words for values that depend on the cluster."""
        if name == "topic_id" and isinstance(value, bytes):
            return self._named_id(value)
        if value is None or isinstance(value, str | bool | bytes | bytearray | memoryview | int):
            return _comparable_value(value, name)
        if isinstance(value, list | tuple) and name not in ("record_errors", "node_endpoints"):
            items = [self.comparable(item, name) for item in value]
            if items and isinstance(items[0], dict):
                items.sort(key=_place)
            return items
        if name == "record_errors":
            return [[index, "A SENTENCE"] for index, _ in value]
        if name == "node_endpoints":
            return [[node, "HOST", "PORT", rack] for node, _, _, rack in value]
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
        else:
            names = list(vars(type(value))["__slots__"])
        return {name: self.comparable(getattr(value, name), name) for name in names}

    def _named_id(self, value: bytes) -> str:
        if not any(value):
            return "NO ID"
        if value == UNKNOWN_ID:
            return "THE UNKNOWN ID"
        return f"ID OF {self._names_by_id.get(value, 'A NEW TOPIC')}"


def _comparable_value(value: Any, name: str) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if value is not None and name in _KINDS:
        return _KINDS[name]
    if isinstance(value, int) and name in _POSITIVE and value >= 0:
        return _POSITIVE[name]
    if name in _TIMES and isinstance(value, int) and abs(value - time.time() * 1000) < 120_000:
        return "NOW"
    if name in _MESSAGES and value:
        return "A SENTENCE"
    return value


def _place(item: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{item.get(key)!s:>40}" for key in _SORTED_BY)
