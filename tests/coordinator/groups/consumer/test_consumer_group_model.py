"""Test random members that join, leave, die and revoke late, while coordinators lose batches.

A partition is never owned by two current members. No member epoch decreases. When all members are
idle each partition has one owner.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog.coordinator.groups.consumer.heartbeat_messages import ConsumerHeartbeatAnswer
from oncelog.wire.errors import ErrorCode

from .consumer_driver import (
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerLog,
    ObedientClient,
    Partition,
    topic_id,
)

WHO = st.integers(0, 99)
TOPICS = st.sampled_from([("t",), ("t", "u"), ("u",), ("t", "nowhere")])
ASSIGNORS = st.sampled_from([None, "uniform", "range"])
INSTANCES = st.sampled_from([None, None, "a", "b"])
PATTERNS = st.sampled_from([None, None, "t|u", "u.*"])
MEMBERS_MAX = 6


class SlowClient(ObedientClient):
    """A member that revokes late. `revokes` has the partitions that it still reads."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.revokes: set[Partition] = set()
        self.is_gone = False

    def obey(self, answer: ConsumerHeartbeatAnswer) -> None:
        before = set(self.owned)
        super().obey(answer)
        if not answer.error:
            self.revokes = before - self.assigned
            self.owned |= self.revokes

    def revoke(self) -> None:
        self.owned -= self.revokes
        self.revokes.clear()


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = ConsumerLog(holds=True)
        self.clients: list[SlowClient] = []
        self.ids = 0

    @initialize(t=st.integers(1, 5), u=st.integers(0, 4))
    def topics_are_there(self, t: int, u: int) -> None:
        self.log.set_topic("t", t)
        if u:
            self.log.set_topic("u", u)

    def client(self, number: int) -> SlowClient:
        return self.clients[number % len(self.clients)]

    @precondition(lambda self: len(self.clients) < MEMBERS_MAX)
    @rule(topics=TOPICS, assignor=ASSIGNORS, instance=INSTANCES, pattern=PATTERNS)
    def join(
        self,
        topics: tuple[str, ...],
        assignor: str | None,
        instance: str | None,
        pattern: str | None,
    ) -> None:
        self.ids += 1
        options = {"assignor": assignor, "instance": instance, "pattern": pattern}
        client = SlowClient(self.log, f"m{self.ids}", topics, **options)
        self.clients.append(client)
        client.beat()

    @precondition(lambda self: self.clients)
    @rule(who=WHO, is_lost=st.booleans(), is_full=st.booleans())
    def beat(self, who: int, is_lost: bool, is_full: bool) -> None:
        client = self.client(who)
        client.obey_late()
        if is_full or not client.epoch:
            client.beat(answer_is_lost=is_lost)
        else:
            client.beat(
                answer_is_lost=is_lost,
                rebalance_timeout_ms=-1,
                topic_names=None,
                topic_pattern=None,
                server_assignor=None,
            )

    @precondition(lambda self: self.clients)
    @rule(who=WHO)
    def revoke(self, who: int) -> None:
        self.client(who).revoke()

    @precondition(lambda self: self.clients)
    @rule(who=WHO, topics=TOPICS)
    def subscribe(self, who: int, topics: tuple[str, ...]) -> None:
        self.client(who).topics = topics

    @precondition(lambda self: self.clients)
    @rule(first=WHO, count=st.integers(1, MEMBERS_MAX), are_slow=st.booleans())
    def some_go_on(self, first: int, count: int, are_slow: bool) -> None:
        """Let an interval pass, and let some members send heartbeats.

        Slow members do not revoke.
        """
        self.log.pass_time(INTERVAL_MS)
        for number in range(first, first + count):
            client = self.client(number)
            client.obey_late()
            if not are_slow:
                client.revoke()
            client.beat()
            self.log.commit()
            client.obey_late()

    @precondition(lambda self: len(self.clients) > 2)
    @rule(who=WHO)
    def leave(self, who: int) -> None:
        client = self.client(who)
        client.revokes.clear()
        client.waiting = None
        client.owned.clear()
        self.log.ask(client.short_request(member_epoch=-1 if client.instance is None else -2))
        self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(who=WHO)
    def die(self, who: int) -> None:
        """Let a member stop its heartbeats, but read on until the group removes it."""
        self.client(who).is_gone = True

    @rule(count=st.integers(1, 4))
    def commit(self, count: int) -> None:
        self.log.commit(count)
        for client in self.clients:
            client.obey_late()

    @precondition(lambda self: self.log.waiting)
    @rule(kept=st.integers(0, 3))
    def coordinator_dies(self, kept: int) -> None:
        """Replace the coordinator. Only the oldest `kept` uncommitted batches are kept."""
        self.log.load_anew(kept)
        for client in self.clients:
            client.waiting = None

    @rule(delay_ms=st.sampled_from([10, INTERVAL_MS, INTERVAL_MS, SESSION_MS // 2, REBALANCE_MS]))
    def pass_time(self, delay_ms: int) -> None:
        self.log.pass_time(delay_ms)

    @rule(name=st.sampled_from(["t", "u"]), partitions=st.integers(1, 3))
    def topic_grows(self, name: str, partitions: int) -> None:
        topic = self.log.by_name.get(name)
        before = 0 if topic is None else len(topic.partitions)
        self.log.set_topic(name, min(before + partitions, 8))

    # -- invariants

    def owners(self) -> dict[Partition, list[str]]:
        members = self.log.table.groups["g"].members if "g" in self.log.table.groups else {}
        found: dict[Partition, list[str]] = {}
        for client in self.clients:
            if client.member_id in members:
                for where in client.owned:
                    found.setdefault(where, []).append(client.member_id)
        return found

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        assert {where: who for where, who in self.owners().items() if len(who) > 1} == {}

    @invariant()
    def no_epoch_goes_back(self) -> None:
        for client in self.clients:
            assert client.epochs == sorted(client.epochs)
            assert 0 not in client.epochs

    def teardown(self) -> None:
        """Check that after all failures members get all partitions, and then write no record."""
        self.log.holds = False
        self.log.commit()
        alive = [client for client in self.clients if not client.is_gone]
        for _ in range(3 * SESSION_MS // 5_000):
            for client in alive:
                client.waiting = None
                client.revoke()
                client.beat()
            self.log.pass_time(5_000)
        written = len(self.log.committed)
        for client in alive:
            client.beat()
        assert len(self.log.committed) == written
        refused = {c.member_id for c in alive if c.epoch == 0}
        readers = [client for client in alive if client.member_id not in refused]
        wanted = {
            (topic_id(name), partition)
            for name, topic in self.log.by_name.items()
            if any(self.reads(client, name) for client in readers)
            for partition in range(len(topic.partitions))
        }
        self.clients = readers
        assert {where: 1 for where in wanted} == {w: len(who) for w, who in self.owners().items()}
        for client in refused:
            assert self.log.ask(self.by_id(alive, client).request()).answer.error in (
                ErrorCode.UNRELEASED_INSTANCE_ID,
            )

    @staticmethod
    def by_id(clients: list[SlowClient], member_id: str) -> SlowClient:
        return next(client for client in clients if client.member_id == member_id)

    @staticmethod
    def reads(client: SlowClient, name: str) -> bool:
        matches = client.pattern == "t|u" or (client.pattern == "u.*" and name == "u")
        return matches or name in (client.topics or ())


TestConsumerGroups = ConsumerGroupMachine.TestCase
TestConsumerGroups.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
