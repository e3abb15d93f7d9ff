"""The environment variables and the clients that all confluent-kafka applications share.

Clients keep librdkafka's defaults except where an application says otherwise. Reading a new topic
from its start is necessary.
"""

# A message of a topic without errors has its key, value and place.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer

CLUSTER = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
if (file := os.environ.get("ONCELOG_CLIENT_CONFIG")) is not None:  # on a secured cluster
    CLUSTER = dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
IN, OUT = os.environ["ONCELOG_IN"], os.environ["ONCELOG_OUT"]
INSTANCE = os.environ["ONCELOG_INSTANCE"]
GROUP = "gallery"
PROTOCOL = sys.argv[2] if len(sys.argv) > 2 else "classic"
is_asked_to_stop = False
membership: Any = None  # of the generation of the assignment


def _stop(*_: object) -> None:
    global is_asked_to_stop
    is_asked_to_stop = True


signal.signal(signal.SIGTERM, _stop)


def consumer(**config: Any) -> Consumer:
    """Return a consumer that subscribes to the input in the group.

    Auto-commit is off unless requested.
    """
    begin: dict[str, Any] = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    named = {key.replace("_", "."): value for key, value in config.items()}
    group = {"group.id": GROUP, "group.protocol": PROTOCOL}
    made = Consumer({**CLUSTER, **group, **begin, **named})
    made.subscribe([IN], on_assign=assigned)
    return made


def assigned(reader: Consumer, _: object = None) -> None:
    """Store the group metadata at the assignment, for later transactions.

    When the session is lost, librdkafka forgets the metadata, and open transactions would not be
    fenced.
    """
    global membership
    membership = reader.consumer_group_metadata()


def producer(**config: Any) -> Producer:
    named = {key.replace("_", "."): value for key, value in config.items()}
    return Producer({**CLUSTER, **named})


def transactional(name: str, **config: Any) -> Producer:
    made = producer(transactional_id=name, **config)
    made.init_transactions(30)
    return made


def batches(reader: Consumer, size: int = 20) -> Iterator[list[Message]]:
    """Yield batches of records until the process is asked to stop. Then close the consumer."""
    while not is_asked_to_stop:
        taken = reader.consume(size, timeout=0.2)
        good = [message for message in taken if message.error() is None]
        if good:
            yield good
    reader.close()


def seek_back(reader: Consumer, batch: list[Message]) -> None:
    """Seek to the batch's first record in each partition that is still assigned."""
    from confluent_kafka import TopicPartition

    first: dict[int, int] = {}
    for message in batch:
        first.setdefault(message.partition(), message.offset())
    mine = {each.partition for each in reader.assignment()}
    for partition, offset in first.items():
        if partition in mine:
            reader.seek(TopicPartition(IN, partition, offset))


def next_offsets(batch: list[Message]) -> list[Any]:
    from confluent_kafka import TopicPartition

    ends = {message.partition(): message.offset() + 1 for message in batch}
    return [TopicPartition(IN, partition, offset) for partition, offset in ends.items()]


def fail(problem: KafkaException) -> None:
    """Print the error, and end the process with exit code 1. A supervisor starts it again."""
    print(problem, file=sys.stderr, flush=True)
    raise SystemExit(1)
