"""The composition of one broker's transaction parts for its partitions."""

from typing import TYPE_CHECKING

from ...replication.peer.transport import PeerTransport
from ...runtime.fault_point import FaultPoint
from .hanging_transactions import HangingTransactionReaper
from .marker_writer import MarkerWriter
from .producer_expiry import ProducerExpiry

if TYPE_CHECKING:
    from ..services import BrokerServices


class PartitionTransactions:
    """The marker writer of a broker, and after `start` the checks that run periodically.

    They end hanging transactions, and expire silent producers.
    """

    def __init__(
        self,
        services: "BrokerServices",
        transport: PeerTransport,
        fault_point: FaultPoint,
    ) -> None:
        self._services = services
        self._transport = transport
        self.markers = MarkerWriter(services.replicas, fault_point=fault_point)
        self.markers.serve(transport)
        services.markers = self.markers

    def start(self) -> None:
        """Begin the periodic work on the running event loop."""
        services, config = self._services, self._services.config
        scan_ms = config.transaction_abort_timed_out_cleanup_interval_ms
        self._expiry = ProducerExpiry(
            services.replicas,
            (services.connection_fence, services.offset_commit_fence),
            expiration_ms=config.producer_id_expiration_ms,
            interval_ms=config.producer_id_expiration_check_interval_ms,
            producers_max=config.producer_ids_max,
        )
        self._reaper = HangingTransactionReaper(
            services.replicas,
            services.transactions,
            self.markers,
            self._transport,
            node_id=config.node_id,
            scan_ms=scan_ms,
            hanging_after_ms=config.transaction_max_timeout_ms + 2 * scan_ms,
        )

    async def expire_producers(self) -> None:
        """Expire silent producers once, before the next periodic expiry."""
        await self._expiry.expire()

    async def stop(self) -> None:
        """Stop the marker writer, the reaper and the producer expiry.

        Coordinators will send their markers again, to another broker.
        """
        await self._reaper.stop()
        await self._expiry.stop()
        await self.markers.stop()

    def metrics(self) -> dict[str, int]:
        services = self._services
        return {
            "transaction_markers_written": self.markers.written_count,
            "transactions_hanging": self._reaper.hanging_count,
            "transactions_orphaned": self._reaper.ended_count,
            "produces_refused_by_connection": services.connection_fence.refused_count,
            "offsets_refused_by_connection": services.offset_commit_fence.refused_count,
        }
