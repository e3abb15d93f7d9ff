"""More group members, in Go and Java, and one that copies with the newer protocol (KIP-848)."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...programs import printed_by
from ..group_members import TOPIC, ConsumerProtocol, Member
from ..kafka_peer import java_source
from ..readers import TIMEOUT_S

FRANZ_VERSION = "v1.22.3"
PROGRAM = Path(__file__).with_name("go") / "member.go"
JAVA_PROGRAM = Path(__file__).parents[1] / "java" / "GroupMember.java"
BUILD_S = 600  # the first time on a machine; Go caches what it has compiled


class Copier(ConsumerProtocol):
    """A librdkafka member that copies records in transactions.

    Each commit of offsets has the member's epoch.
    """

    def __init__(self, bootstrap: str, group: str, sink: str, *, subscription: str) -> None:
        self.sink = sink
        super().__init__(bootstrap, group, subscription=subscription)

    def _use(self, consumer: Any) -> None:
        from confluent_kafka import KafkaException, Producer, TopicPartition

        settings = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        producer = Producer({**settings, "transactional.id": f"{self.group}-{id(self)}"})
        producer.init_transactions(TIMEOUT_S)
        while not self._end.is_set():
            messages = [m for m in consumer.consume(20, timeout=0.05) if not m.error()]
            self.note(frozenset(p.partition for p in consumer.assignment()))
            if not messages:
                continue
            producer.begin_transaction()
            try:
                for message in messages:
                    producer.produce(self.sink, message.value(), partition=message.partition())
                member = consumer.consumer_group_metadata()
                ends = {m.partition(): m.offset() + 1 for m in messages}
                offsets = [TopicPartition(self.subscription, *end) for end in ends.items()]
                producer.send_offsets_to_transaction(offsets, member, TIMEOUT_S)
                producer.commit_transaction(TIMEOUT_S)
                self.committed += 1
            except KafkaException as problem:
                assert problem.args[0].txn_requires_abort(), problem
                producer.abort_transaction(TIMEOUT_S)
                self._rewind(consumer)

    @staticmethod
    def _rewind(consumer: Any) -> None:
        """Seek to the group's committed offsets, or to 0 without any."""
        for place in consumer.committed(consumer.assignment(), TIMEOUT_S):
            place.offset = max(place.offset, 0)
            consumer.seek(place)


class Program(Member):
    """A member in another process, which prints its events as JSON lines.

    It leaves the group when its standard input ends.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        bootstrap: str,
        group: str,
        *,
        instance: str | None = None,
        cooperative: bool = False,
        client: str | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        super().__init__(
            bootstrap, group, instance=instance, cooperative=cooperative, client=client
        )

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            super().stop()
        finally:
            self._process.kill()
            self._process.wait()

    def _run(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._heard(json.loads(line))
        assert self._process.wait(TIMEOUT_S) == 0, "it ended badly"

    def _heard(self, told: dict[str, Any]) -> None:
        for word, value in told.items():
            match word:
                case "assigned":
                    self.note(frozenset(value))
                case "read":
                    self.read += [(partition, offset) for partition, offset in value]
                case "committed":
                    self.committed += 1
                case _:
                    self.errors.append(value)


class FranzGo(Program):
    """A franz-go member with the newer group protocol.

    With a `sink` the member copies its records to that topic.
    """

    program: Path  # compiled

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *,
        instance: str | None = None,
        assignor: str | None = None,
        subscription: str,
        sink: str = "",
    ) -> None:
        command = [
            self.program, bootstrap, group, subscription, assignor or "", instance or "", sink,
        ]  # fmt: skip
        super().__init__(command, bootstrap, group, instance=instance)


class JavaClassic(Program):
    """A Java KafkaConsumer with the classic group protocol."""

    def __init__(
        self, bootstrap: str, group: str, *, cooperative: bool = False, client: str
    ) -> None:
        assignor = "CooperativeStickyAssignor" if cooperative else "RangeAssignor"
        command = java_source(JAVA_PROGRAM, bootstrap, group, TOPIC, client, assignor)
        super().__init__(command, bootstrap, group, cooperative=cooperative, client=client)


def compiled(folder: Path) -> Path:
    """Compile the Go program of `FranzGo` in this folder, and return its path."""
    shutil.copy(PROGRAM, folder)
    for command in (
        ["go", "mod", "init", "member"],
        ["go", "get", f"github.com/twmb/franz-go/pkg/kgo@{FRANZ_VERSION}"],
        ["go", "build", "-o", "member", "."],
    ):
        printed_by(command, BUILD_S, cwd=folder)
    return folder / "member"
