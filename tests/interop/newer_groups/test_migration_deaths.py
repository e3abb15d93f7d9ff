"""Test the death of a coordinator while members of librdkafka change their group's protocol.

A member of the newer protocol joins two classic members and leaves them, ten times each. In the
middle of each of these steps the coordinator gets SIGKILL, at a moment that the seed draws.
Afterwards the log has the group as a classic or a consumer group, never both. Its offsets are the
acknowledged offsets, and all members continue.
"""

import random
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from oncelog.coordinator.groups.consumer.record_codec import decode_consumer_key
from oncelog.coordinator.groups.records import GroupKey, OffsetKey, decode_key
from oncelog.deploy.cluster.local_cluster import Cluster

from ...waiting import until
from ..group_members import PARTITIONS, TOPIC, Confluent, ConsumerProtocol, Member, share
from ..readers import WITH_LIBRARIES, fill, messages, new_topic

pytestmark = [*WITH_LIBRARIES, pytest.mark.chaos]
KILLS = 20
MOMENT_S = 0.3  # after the step has begun, at most: the coordinator dies
OFFSETS_TOPIC, SHARDS = "__consumer_offsets", 8
RECORDS = 5  # a partition, after each kill
SETTLED_S = 60.0


class Group:
    """A group on a cluster, and its classic and consumer members."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.written = 0  # records a partition

    def forms(self) -> set[str]:
        """Return the group types, classic or consumer, of the group's records in the log."""
        newest = {
            message.key() or b"": message.value()
            for message in messages(self.cluster.bootstrap, OFFSETS_TOPIC, SHARDS, committed=False)
        }
        found = set[str]()
        for data, value in newest.items():
            key: Any = decode_key(data) or decode_consumer_key(data)
            if value is None or isinstance(key, OffsetKey) or key is None:
                continue
            if key.group_id == self.name:
                found.add("CLASSIC" if isinstance(key, GroupKey) else "CONSUMER")
        return found

    def kind(self) -> str:
        """Return the group type in a description by librdkafka's AdminClient."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        try:
            return admin.describe_consumer_groups([self.name])[self.name].result(10).type.name
        except KafkaException as problem:
            return str(problem)

    def becomes(self, kind: str) -> None:
        """Wait until the group has this type."""
        until(lambda: self.kind() == kind, lambda: f"{self.kind()}, not {kind}", SETTLED_S)

    def committed(self) -> dict[int, int]:
        """Return the group's committed offsets by partition."""
        found = self.cluster.ask(lambda admin: admin.groups.committed(self.name))
        return {partition: place.offset for (_, partition), place in found.items()}

    def acknowledged(self) -> dict[int, int]:
        """Return the highest committed offset of each partition that a member saw acknowledged."""
        highest = dict.fromkeys(range(PARTITIONS), 0)
        for member in (*self.members, *self.gone):
            for partition, offset in dict(member.acknowledged).items():
                highest[partition] = max(highest[partition], offset)
        return highest

    def write(self) -> None:
        fill(
            self.cluster.bootstrap,
            TOPIC,
            [(None, b"x", p) for _ in range(RECORDS) for p in range(PARTITIONS)],
        )
        self.written += RECORDS

    def goes_on(self) -> None:
        """Assert that each partition has one owner, and that all members commit new records."""
        share(*self.members)
        before = [member.committed for member in self.members]
        self.write()
        wanted = dict.fromkeys(range(PARTITIONS), self.written)
        until(
            lambda: self.committed() == wanted, lambda: f"{self.committed()}, not {wanted}",
            SETTLED_S,
        )  # fmt: skip
        until(
            lambda: all(m.committed > n for m, n in zip(self.members, before, strict=True)),
            lambda: f"commits {before} -> {[m.committed for m in self.members]}",
        )
        share(*self.members)

    def kill_in(self, step: threading.Thread, delay_s: float) -> None:
        """Kill the coordinator `delay_s` after the step began, restart it, and check the group."""
        coordinator = self.cluster.coordinator("group", self.name)
        step.start()
        time.sleep(delay_s)
        self.cluster.kill(coordinator)
        known = self.acknowledged()
        self.cluster.start(coordinator)
        found = self.committed()
        assert all(found.get(p, 0) >= offset for p, offset in known.items()), (found, known)
        assert all(offset <= self.written for offset in found.values()), found
        forms = self.forms()
        assert len(forms) == 1, f"the group's records are of {forms or 'no form'}"
        step.join(SETTLED_S)
        assert not step.is_alive()


def test_group_with_a_coordinator_killed_in_a_protocol_change_has_one_type(
    newer_cluster: Cluster, stack: ExitStack
) -> None:
    rng = random.Random("deaths in migration")
    new_topic(newer_cluster, TOPIC, PARTITIONS)
    group = Group(newer_cluster, "dying")

    def starts(kind: type[Member]) -> None:
        made = kind(newer_cluster.bootstrap, group.name)
        stack.callback(made.stop)
        group.members.append(made)

    for _ in range(2):
        starts(Confluent)
    share(*group.members)
    group.goes_on()
    for number in range(KILLS):
        delay_s = rng.uniform(0, MOMENT_S)
        joins = number % 2 == 0
        if joins:
            step = threading.Thread(target=starts, args=(ConsumerProtocol,))
        else:
            consumer = group.members.pop()
            group.gone.append(consumer)
            step = threading.Thread(target=consumer.stop)
        print(f"kill {number}: {'joins' if joins else 'leaves'}, {delay_s * 1e3:.0f} ms")
        group.kill_in(step, delay_s)
        wanted = "CONSUMER" if joins else "CLASSIC"
        group.becomes(wanted)
        group.goes_on()
        assert group.forms() == {wanted}
        newer_cluster.wait_for_isr(OFFSETS_TOPIC, 3)
