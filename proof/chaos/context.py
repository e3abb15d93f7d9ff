"""The context of the faults of a chaos run: nodes, clients, and the recorded history."""

from collections.abc import Mapping

from ...deploy.cluster.failure import Failure
from ...deploy.faults.client_proxies import ClientProxies
from ...deploy.faults.engine import Action
from ...deploy.faults.faulty_cluster import FaultyCluster
from ...deploy.faults.node_actions import NodeContext
from ...deploy.faults.schedule import Fault
from ...wire.errors import KafkaError
from ..judge.history.recorder import Recorder
from .client_processes import ClientProcesses
from .load.order import WorkerOrder
from .load.settings import APPEND, LoadSettings


class ChaosContext(NodeContext):
    """The objects that the faults of a chaos run act on: nodes, clients, proxies and the history.

    A fault that raises one of the `tolerated` errors is a miss. Any other error ends the run.
    """

    tolerated = (Failure, KafkaError, OSError)

    def __init__(
        self,
        cluster: FaultyCluster,
        processes: ClientProcesses,
        proxies: ClientProxies,
        recorder: Recorder,
        settings: LoadSettings,
        *,
        seed: int,
        transactional_ids: list[str],
        extra_order: WorkerOrder,
        connection: str,
    ) -> None:
        partitions = range(settings.append_partitions)
        groups = settings.group, settings.readers
        super().__init__(cluster)
        self.victims = {
            "kill": lambda fault: str(fault.pick(0, cluster.node_ids)),
            "kill-leader": lambda fault: f"leader:{APPEND}/{fault.pick(0, partitions)}",
            "kill-transaction-coordinator": lambda fault: f"txn:{fault.pick(0, transactional_ids)}",
            "kill-group-coordinator": lambda fault: f"group:{fault.pick(0, groups)}",
            "kill-controller": lambda fault: "controller",
        }
        self.processes, self.proxies = processes, proxies
        self.settings, self.extra_order = settings, extra_order
        self.connection = connection  # of the clients of the load
        self._recorder, self._seed = recorder, seed

    def make(self, fault: Fault, actions: Mapping[str, Action]) -> None:
        """Inject a fault, and record it in the history if its effect was seen."""
        now_ns = self._recorder.now_ns
        started_ns = now_ns()
        try:
            super().make(fault, actions)
        finally:
            if fault.target:
                row = (fault.kind, fault.target, started_ns, now_ns(), self._seed)
                with self.lock:
                    self._recorder.add("faults", *row)
