"""Passes the proxy's events to the diagnosis, and requests the configuration of the cluster."""

import threading
import time
from collections.abc import Callable, Iterable

from ....client.admin import BROKER_RESOURCE, Admin
from ....deploy.faults.protocol_proxy.events import Event
from ....wire.errors import KafkaError
from ..relation import LogRecord
from .catalogue import ApplicationFinding
from .diagnosis import Diagnosis
from .seen import Input, SeenCluster, SeenProduce, SeenRequest, SeenTopic, SeenVerdict, Sighting
from .translating import Translator

FENCE_KEY = "oncelog.transaction.connection.fence"


class DiagnosisListener:
    """A listener for the proxy's events, which reports mistakes of the application.

    The proxy's loop calls the listener, and other threads read its findings. on_finding: called
    with each new finding. inputs, outputs: the topics, where they are known.
    """

    def __init__(
        self,
        on_finding: Callable[[ApplicationFinding], None] | None = None,
        *,
        is_aggregate: bool = False,
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
    ) -> None:
        self._inputs, self._outputs = frozenset(inputs), frozenset(outputs)
        self._diagnosis = Diagnosis(is_aggregate=is_aggregate)
        self._translator = Translator()
        self._on_finding = on_finding
        self._lock = threading.Lock()
        self._topics = set[str]()
        self._requests = 0

    def __call__(self, event: Event) -> None:
        for sighting in self._translator.sightings(event):
            self.see(sighting)

    def see(self, sighting: Sighting) -> None:
        with self._lock:
            self._requests += isinstance(sighting, SeenRequest)
            if isinstance(sighting, SeenProduce):
                self._topics |= {batch.partition[0] for batch in sighting.batches}
            found = self._diagnosis.see(sighting)
        if self._on_finding is not None:
            for one in found:
                self._on_finding(one)

    def look_back(
        self,
        *,
        doubled: int,
        lost: int,
        lost_inputs: frozenset[Input],
        wrong_finals: int,
        is_sink: bool,
        is_open: bool,
    ) -> None:
        """Report mistakes that show only with the judgement of the outputs, at the end of a run."""
        self.see(
            SeenVerdict(
                at_s=time.monotonic(),
                doubled=doubled,
                lost=lost,
                lost_inputs=lost_inputs,
                wrong_finals=wrong_finals,
                is_sink=is_sink,
                inputs=self._inputs,
                outputs=self._outputs,
                is_open=is_open,
            )
        )

    @property
    def findings(self) -> list[ApplicationFinding]:
        with self._lock:
            return self._diagnosis.findings

    @property
    def requests(self) -> int:
        """Return the number of observed requests."""
        return self._requests

    @property
    def written_topics(self) -> set[str]:
        with self._lock:
            return set(self._topics)


def places_of(records: Iterable[LogRecord]) -> frozenset[Input]:
    """Return the partition and the offset of each record."""
    return frozenset(((each.topic, each.partition), each.offset) for each in records)


async def of_cluster(admin: Admin, topics: Iterable[str], at_s: float) -> list[Sighting]:
    """Return the configuration of the cluster and of these topics as sightings.

    A resource whose request fails is omitted.
    """
    found: list[Sighting] = []
    brokers = (await admin.describe_cluster()).brokers
    try:
        configs = await admin.describe_configs(str(brokers[0].node_id), BROKER_RESOURCE)
        values = {config.name: config.value for config in configs}
        found.append(SeenCluster(at_s=at_s, has_connection_fence=values.get(FENCE_KEY) == "true"))
    except (KafkaError, IndexError):
        pass
    for topic in topics:
        try:
            configs = await admin.describe_configs(topic)
            partitions = await admin.describe_topics([topic])
        except KafkaError:
            continue
        values = {config.name: config.value for config in configs}
        least = int(values.get("min.insync.replicas") or 1)
        copies = min((len(each.replicas) for each in partitions), default=0)
        found.append(
            SeenTopic(at_s=at_s, topic=topic, min_insync_replicas=least, replication_factor=copies)
        )
    return found
