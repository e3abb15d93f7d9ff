"""Send every case of `cases.py` to Apache Kafka, and record the answers.

    python -m tests.interop.recorded.record [--only STATE] [--to FILE] [--prove]

The program runs two nodes of Apache Kafka for 5 minutes on two cores. It is run by hand, when there
is a new release of Kafka or the cases change. Node 1 coordinates, and leads all topics except
`held`. Node 2 leads `held` until it is paused, so a transaction with a partition of `held` stays in
PrepareCommit or PrepareAbort.

Epochs rise by one with each InitProducerId, so to bring a transactional id near the end of its
epochs would take 32,765 requests. Instead, before the coordinator loads its log, the program writes
a record in state Empty there, at one epoch below the wanted one. Kafka allows this to its admin
client. The last step is an InitProducerId as in all other cases. `--prove` brings one id there by
requests alone, and compares its answers with those of an id with a written epoch.
"""

import argparse
import struct
import tempfile
import time
from pathlib import Path

from oncelog.coordinator.sharding import shard_for
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from ..kafka_peer import KAFKA_VERSION, KafkaPeer
from ..raw_peer import CREATE_TOPICS, PRODUCE, RawPeer
from .cases import FIXTURE, cases, write
from .requests import CALM, HELD, KNOWN_GROUP, NEW_GROUP
from .stage import Stage, play

SETTINGS = {
    "broker.session.timeout.ms": "600000",  # the paused node stays the leader
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
SHARDS = 4
FIRST_WRITTEN_PRODUCER_ID = 10_000_000
ADMIN_CLIENT = "__admin_client"  # the client id that may write to internal topics
TRANSACTION_LOG = "__transaction_state"
_value = struct.Struct(">hqhibiqq")  # version 0, and no partitions


def state_record(name: str, producer_id: int, epoch: int) -> tuple[bytes, bytes]:
    """Return key and value of Kafka's record for a transactional id without a transaction."""
    text = name.encode()
    key = struct.pack(">hh", 0, len(text)) + text
    now_ms = int(time.time() * 1000)
    return key, _value.pack(0, producer_id, epoch, 900_000, 0, -1, now_ms, -1)


def write_states(peer: RawPeer, records: dict[str, tuple[int, int]]) -> None:
    """Write the producer id and epoch of each transactional id to the coordinator's log."""
    by_shard: dict[int, list[Record]] = {}
    now_ms = int(time.time() * 1000)
    for name, (producer_id, epoch) in records.items():
        rows = by_shard.setdefault(shard_for(name, SHARDS), [])
        key, value = state_record(name, producer_id, epoch)
        rows.append(Record(len(rows) % 500, now_ms, key, value))
    peer.client_id = ADMIN_CLIENT
    for shard, rows in by_shard.items():
        for start in range(0, len(rows), 500):
            part = ProducePartition(shard, encode_batch(rows[start : start + 500]))
            topics = [ProduceTopic(TRANSACTION_LOG, None, [part])]
            answer = peer.ask_raw(PRODUCE, 9, ProduceRequest(None, -1, 5000, topics))
            error = answer.topics[0].partitions[0].error_code
            assert error == 0, f"the log of the coordinator was not written: {error}"


def create_topics(peer: RawPeer) -> None:
    """Create the topic CALM on node 1, and the topic HELD on node 2."""
    topics = [
        {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": index, "broker_ids": [node]} for index in range(count)
            ],
        }
        for name, count, node in ((CALM, 2, 1), (HELD, 1, 2))
    ]
    answer = peer.ask_raw(CREATE_TOPICS, 5, {"timeout": 10000, "topics": topics})
    assert all(topic.error_code == 0 for topic in answer.topics), answer
    peer.learn(CALM, 2)


def prove(stage: Stage, reached: str, written: str) -> None:
    """Assert that an id with a written epoch acts like one that reached its epoch by requests."""
    start = time.monotonic()
    while stage.init(reached).producer_epoch < 32764:
        pass
    assert stage.init(written).producer_epoch == 32764
    print(f"32,765 requests in {time.monotonic() - start:.0f} s")

    def lived(name: str) -> list[str]:
        seen = []
        own_id: int | None = None
        for version in (4, 4, 5, 4, 5, 4):
            answer = stage.insist(lambda: stage.init(name))
            identity = answer.producer_id, answer.producer_epoch
            own_id = own_id or identity[0]
            seen.append(f"{identity[0] == own_id} {identity[1]}")
            stage.insist(lambda: stage.add_partitions(name, 3, identity, (CALM, 0)))  # noqa: B023
            answer = stage.insist(lambda: stage.end(name, version, identity, True))  # noqa: B023
            ended = getattr(answer, "producer_id", None), getattr(answer, "producer_epoch", None)
            seen.append(f"{ended[0] == own_id} {ended[1]}")
        return seen

    assert lived(reached) == lived(written)
    print("an id that was written into the log answers as one that came there by requests")


def main() -> None:
    """Record the answers as the top of the file describes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="record only states whose names contain this")
    parser.add_argument("--to", type=Path, default=FIXTURE)
    parser.add_argument("--prove", action="store_true")
    options = parser.parse_args()
    chosen = [case for case in cases() if options.only in case.state.name]
    names = {case: f"case-{number}" for number, case in enumerate(chosen)}
    written = {
        names[case]: (FIRST_WRITTEN_PRODUCER_ID + number, case.start_epoch - 1)
        for number, case in enumerate(chosen)
        if case.start_epoch > 1
    }
    written["proof-written"] = FIRST_WRITTEN_PRODUCER_ID - 1, 32763
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaPeer(Path(folder), nodes=2, voters=1, started=1, settings=SETTINGS) as kafka,
    ):
        first = Stage({1: kafka.addresses[1]})
        # Both internal topics are created while only one node can lead them.
        first.insist(lambda: first.init("warm"))
        first.warm(KNOWN_GROUP)
        write_states(first.peer(1), written)
        kafka.stop(1)
        kafka.start(1)
        kafka.start(2)
        stage = Stage(kafka.addresses)
        create_topics(stage.peer(1))
        stage.peer(2).learn(HELD)
        for group in (KNOWN_GROUP, NEW_GROUP):
            stage.warm(group)
        if options.prove:
            prove(stage, "proof-reached", "proof-written")
        answers = play(stage, chosen, names, lambda: kafka.pause(2), askers=1)
    write(options.to, KAFKA_VERSION, answers)
    print(f"{len(answers)} answers in {options.to}, {options.to.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
