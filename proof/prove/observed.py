"""The proxy's listener, which observes an application by its requests while it runs.

The listener records the facts that can explain a record (its fetches, its outputs' producers, its
commits), the open work, and the progress of other instances during a pause. The proxy's loop calls
it, and other threads read it.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...deploy.faults.protocol_proxy.events import Answer, ConnectionClosed, Event, Request
from ...deploy.faults.protocol_proxy.subjects import TopicNames
from ...wire.error_codes import ErrorCode
from ...wire.errors import KafkaError
from ...wire.record_batch import decode_header, iterate_batches
from .facts import Committed, Fact, Fetched, Joined, Producing, TransactionEnded, Wrote
from .plan import COMMITS, END_TXN, PRODUCE

FACTS_MAX, FACTS_LOOKED_AT = 400_000, 20_000
COMMITS_LOOKED_AT = 200  # of each instance, however many partitions each covers
HAD_S = 5.0  # inputs that came so shortly before a pause are in hand
WORK = PRODUCE | END_TXN | COMMITS
ENDS = END_TXN | {"OffsetCommit"}  # the ends of work on some inputs
JOINED = frozenset(("SyncGroup", "ConsumerGroupHeartbeat"))
TRIES = WORK | {"InitProducerId"}
TRIES_MIN = 5  # without progress; a client retries by itself while a coordinator moves


@dataclass(slots=True)
class Tries:
    """The failed attempts of an instance since its last commit, with the last `error`.

    Failed attempts are refused requests, aborted transactions and new producers.
    """

    count: int = 0
    producers: int = 0
    error: str = ""
    at_s: float = 0.0

    @property
    def words(self) -> str:
        parts = [
            f"{self.producers} producers made" if self.producers > 1 else "",
            f"the last error {self.error}" if self.error else "",
        ]
        tail = ", ".join(filter(None, parts))
        return f"it tried {self.count} times without a commit" + (f" ({tail})" if tail else "")


class Observed:
    """All facts about the application so far. `inputs` and `outputs` are topics."""

    def __init__(self, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        self._inputs, self._outputs = frozenset(inputs), frozenset(outputs)
        self._lock = threading.Lock()
        self._names = TopicNames()
        self._apis = set[str]()
        # Unanswered requests: connection and correlation id -> instance and API.
        self._open: dict[tuple[int, int], tuple[str, str]] = {}
        self._heard_s = dict[str, float]()  # by instance: its last request or answer
        self._members = set[str]()  # instances that have been in a group
        self._ended_s = dict[str, float]()  # by instance: its last answer to one of ENDS
        self._committed_s = dict[str, float]()  # by transactional id: its last commit
        self._through_s = dict[str, float]()  # by instance: its last commit
        # Transactional id -> instance, of open transactions; the oldest first.
        self._transactions = dict[str, str]()
        self._2pc = set[str]()  # transactional ids with two-phase commit
        self._fetched, self._committed = dict[tuple[str, int], int](), dict[tuple[str, int], int]()
        self.groups: dict[str, None] = {}
        self.transactional_ids: dict[str, None] = {}
        self.lowered: dict[str, None] = {}  # which timeouts, in words
        self.facts: list[Fact] = []
        self._recent = deque[Fact](maxlen=FACTS_LOOKED_AT)
        self._commits_s = dict[str, deque[float]]()  # by instance
        self._tries = dict[str, Tries]()  # by instance
        self.worked_at_s = time.monotonic()  # when something was last written or committed

    # --- what is asked of it

    @property
    def apis(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._apis)

    @property
    def fetched(self) -> dict[tuple[str, int], int]:
        """Return the offset up to which some instance has fetched, by input partition."""
        with self._lock:
            return dict(self._fetched)

    def open_work(self, instance: str | None = None) -> int:
        """Return the amount of work in flight, of one instance or of all.

        It is the number of unanswered requests that write or commit, and of open transactions.
        Inputs that any instance has fetched, and that are not committed, count as 1.
        """
        with self._lock:
            open_now = self._open.values()
            requests = sum(instance in (None, i) and api in WORK for i, api in open_now)
            transactions = sum(instance in (None, i) for i in self._transactions.values())
            behind = any(end > self._committed.get(p, 0) for p, end in self._fetched.items())
        return requests + transactions + behind

    def is_in_transaction(self, instance: str) -> bool:
        """Return whether the instance is in a transaction without two-phase commit.

        Only such a transaction may time out.
        """
        with self._lock:
            return any(i == instance for t, i in self._transactions.items() if t not in self._2pc)

    def has_finished(self, instance: str, since_s: float) -> bool:
        """Return whether a commit or abort of an instance was answered since this time.

        The result is True if the application sends no requests that end work.
        """
        with self._lock:
            return self._apis.isdisjoint(ENDS) or self._ended_s.get(instance, 0.0) > since_s

    def has_committed(self, transactional_id: str, since_s: float) -> bool:
        """Return whether a transaction of this id was committed since this time."""
        with self._lock:
            return self._committed_s.get(transactional_id, float("-inf")) > since_s

    def has_gone_through(self, instance: str, since_s: float) -> bool:
        """Return whether an instance has committed since this time. An abort does not count.

        The result is True if the application sends no requests that end work.
        """
        with self._lock:
            return self._apis.isdisjoint(ENDS) or self._through_s.get(instance, 0.0) > since_s

    def in_vain(self, instance: str, since_s: float) -> str:
        """Return text about TRIES_MIN or more failed attempts, the last since this time, or ""."""
        with self._lock:
            tries = self._tries.get(instance)
            if tries is None or tries.count < TRIES_MIN or tries.at_s < since_s:
                return ""
            return tries.words

    @property
    def open_transactions(self) -> dict[str, str]:
        """Return the ids of open transactions, the oldest first, and the instance of each.

        The transaction of a dead instance may still be listed, since the coordinator ends it
        without a visible request.
        """
        with self._lock:
            return dict(self._transactions)

    def silent_since_s(self, instance: str) -> float | None:
        """Return the time since which a group member has been silent.

        Returns None while the member waits for an answer, as a JoinGroup is answered when all
        others have joined. Returns None, too, for an instance that was in no group, as only members
        send heartbeats.
        """
        with self._lock:
            if instance not in self._members or any(instance == i for i, _ in self._open.values()):
                return None
            return self._heard_s[instance]

    def had(self, instance: str, at_s: float) -> frozenset[tuple[str, int]]:
        """Return the input partitions from which the instance fetched shortly before that time."""
        with self._lock:
            return frozenset(
                (f.topic, f.partition)
                for f in self._recent
                if isinstance(f, Fetched) and f.instance == instance and f.at_s > at_s - HAD_S
            )

    def had_last(self, partition: tuple[str, int]) -> str:
        """Return the instance that was the last to fetch from this input partition, or ""."""
        with self._lock:
            return next(
                (
                    f.instance
                    for f in reversed(self._recent)
                    if isinstance(f, Fetched) and (f.topic, f.partition) == partition
                ),
                "",
            )

    def has_gone_on(self, without: str, since_s: float, had: frozenset[tuple[str, int]]) -> bool:
        """Return whether an instance other than `without` committed offsets of these partitions.

        Only commits after `since_s` count. If the application commits no offsets in Kafka, a fetch
        counts. had: the partitions, empty for all.
        """
        with self._lock:
            recent = list(self._recent)
            progress = Fetched if self._apis.isdisjoint(COMMITS) else Committed
        return any(
            isinstance(f, progress)
            and f.instance != without
            and f.at_s > since_s
            and (not had or (f.topic, f.partition) in had)
            for f in recent
        )

    def brings_inputs(self, answer: Answer) -> bool:
        """Return whether the answer to a Fetch has records of an input topic."""
        with self._lock:
            return any(True for _ in self._batches(answer.body))

    def committed_at_s(self, instance: str, since_s: float) -> list[float]:
        """Return the times at which an instance has committed offsets since this time."""
        with self._lock:
            found = list(self._commits_s.get(instance, ()))
        return sorted(at_s for at_s in found if at_s > since_s)

    # --- what it is told

    def __call__(self, event: Event) -> None:
        """Process an event of the proxy.

        Malformed bodies and batches are ignored, as brokers refuse them.
        """
        try:
            if isinstance(event, Request):
                self._request(event)
            elif isinstance(event, Answer):
                self._answer(event)
            elif isinstance(event, ConnectionClosed):
                self._closed(event.connection.id)
        except (KafkaError, ValueError):
            return

    def _request(self, request: Request) -> None:
        with self._lock:
            self._apis.add(request.api)
            self.lowered.update(dict.fromkeys(request.lowered))
            self._heard_s[request.instance] = request.at_s
            if request.api in WORK:
                self.worked_at_s = request.at_s
            key = (request.connection.id, request.correlation_id)
            self._open[key] = (request.instance, request.api)
        if request.api == "Produce":
            with self._lock:
                if request.body.acks == 0:  # it has no answer
                    del self._open[key]
                if name := request.body.transactional_id:
                    self._transactions[name] = request.instance

    def _closed(self, connection: int) -> None:
        with self._lock:
            for key in [key for key in self._open if key[0] == connection]:
                del self._open[key]

    def _answer(self, answer: Answer) -> None:
        request = answer.request
        with self._lock:
            self._open.pop((request.connection.id, request.correlation_id), None)
            self._heard_s[request.instance] = answer.at_s
        if not answer.is_from_broker:
            return
        if request.api == "Metadata":
            self._names.learn(answer.body.topics)
            return
        with self._lock:
            if request.api in ENDS:
                self._ended_s[request.instance] = answer.at_s
            if request.api in TRIES:
                self._tried(request, answer)
            found = list(self._facts_of(request, answer))
            self._recent += found
            if any(isinstance(fact, Committed) for fact in found):
                times_s = self._commits_s.setdefault(
                    request.instance, deque[float](maxlen=COMMITS_LOOKED_AT)
                )
                times_s.append(answer.at_s)
            if len(self.facts) < FACTS_MAX:
                self.facts += found

    def _tried(self, request: Request, answer: Answer) -> None:
        error = answer.error_code
        if request.api in ENDS and not error and getattr(request.body, "committed", True):
            self._tries.pop(request.instance, None)
            self._through_s[request.instance] = answer.at_s
        elif error or request.api in ("EndTxn", "InitProducerId"):
            tries = self._tries.setdefault(request.instance, Tries())
            tries.count += 1
            tries.producers += request.api == "InitProducerId"
            tries.at_s = answer.at_s
            if error:
                tries.error = _error_name(error)

    def _facts_of(self, request: Request, answer: Answer) -> Iterator[Fact]:
        at_s, who, is_lost = answer.at_s, request.instance, answer.fate == "lost"
        api = request.api
        if api == "Fetch":
            for topic, partition, first, end in self._batches(answer.body):
                self._fetched[topic, partition] = max(self._fetched.get((topic, partition), 0), end)
                if self._apis.isdisjoint(WORK):  # it has no other visible work
                    self.worked_at_s = at_s
                yield Fetched(at_s, who, topic, partition, first, end)
        elif api == "Produce":
            yield from self._written(request, answer)
        elif api in JOINED and not answer.error_code:
            group = request.body.group_id
            self.groups[group] = None
            self._members.add(who)
            if api == "SyncGroup" or getattr(answer.body, "assignment", None) is not None:
                yield Joined(at_s, who, group, getattr(request.body, "generation_id", -1))
        elif api == "InitProducerId" and not answer.error_code:
            name = request.body.transactional_id
            if name:
                self.transactional_ids[name] = None
                if not getattr(request.body, "keep_prepared_txn", False):
                    self._transactions.pop(name, None)  # it has been aborted
                if getattr(request.body, "enable2_pc", False):
                    self._2pc.add(name)
            yield Producing(
                at_s, who, name or "", answer.body.producer_id, answer.body.producer_epoch
            )
        elif api in ("OffsetCommit", "TxnOffsetCommit") and not answer.error_code:
            body = request.body
            self.groups[body.group_id] = None
            name = getattr(body, "transactional_id", "")
            if name:
                self._transactions[name] = who
            for topic in body.topics:
                named = getattr(topic, "name", "") or self._names.get(
                    getattr(topic, "topic_id", b""), ""
                )
                for p in topic.partitions:
                    if named in self._inputs:
                        key, offset = (named, p.partition_index), p.committed_offset
                        self._committed[key] = max(self._committed.get(key, 0), offset)
                        yield Committed(at_s, who, body.group_id, name, *key, offset, is_lost)
        elif api == "EndTxn" and not answer.error_code:
            body = request.body
            self._transactions.pop(body.transactional_id, None)
            if body.committed:
                self._committed_s[body.transactional_id] = at_s
            yield TransactionEnded(
                at_s,
                who,
                body.transactional_id,
                body.producer_id,
                body.producer_epoch,
                body.committed,
                is_lost,
            )

    def _batches(self, body: Any) -> Iterator[tuple[str, int, int, int]]:
        """Yield (topic, partition, first offset, end offset) of the input records in an answer."""
        for topic in body.topics:
            name = topic.name or self._names.get(topic.topic_id or b"", "")
            if name in self._inputs:
                for p in topic.partitions:
                    headers = [h for _, h in iterate_batches(p.records or b"")]
                    if headers:
                        yield name, p.index, headers[0].base_offset, headers[-1].next_offset

    def _written(self, request: Request, answer: Answer) -> Iterator[Wrote]:
        sent = {
            (topic.name or topic.topic_id, p.index): decode_header(p.records)
            for topic in request.body.topics
            for p in topic.partitions
            if p.records
        }
        for topic in answer.body.topics:
            name = topic.name or self._names.get(topic.topic_id or b"", "")
            for p in topic.partitions:
                header = sent.get((topic.name or topic.topic_id, p.index))
                if name in self._outputs and header is not None and not p.error_code:
                    yield Wrote(
                        answer.at_s,
                        request.instance,
                        request.body.transactional_id or "",
                        name,
                        p.index,
                        p.base_offset,
                        p.base_offset + header.last_offset_delta + 1,
                        header.producer_id,
                        header.producer_epoch,
                        request.body.acks,
                        answer.fate == "lost",
                    )


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def wait_for(holds: Any, timeout_s: float, pause_s: float = 0.02) -> bool:
    """Wait until the condition holds. Return False at the timeout."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True
