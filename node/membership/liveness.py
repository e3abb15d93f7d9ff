"""A broker's registration, heartbeats, and controlled shutdown.

Each process start is a new incarnation, so even a restart within 90 ms counts as a failure. The
controller removes the broker from every ISR before it is live again. Heartbeats then report that
the listener serves. A broker that was fenced after a long pause is unfenced by the same heartbeats.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ...coordinator.controller.controller import Heartbeat, HeartbeatReply
from ...coordinator.metadata.cluster_model import PLAINTEXT
from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.metadata.commands import RegisterBroker
from ...coordinator.raft.group import RaftGroup
from ...runtime.background_task import background_task, end_tasks
from ...wire.errors import ErrorCode, KafkaError, RequestTimedOut, error_for
from ..clock import until_tenth_s
from ..config.broker_config import BrokerConfig
from ..config.listeners import Listener
from ..controller.client import ControllerClient

logger = logging.getLogger(__name__)
REGISTRATION_ATTEMPT_MS = 30_000
INCARNATION_BYTES = 16
_REPLACED = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


def registered_endpoints(listeners: Sequence[Listener]) -> tuple[tuple[str, str, int, int], ...]:
    """Return the endpoints to register, or none for a single PLAINTEXT listener.

    A broker with a single PLAINTEXT listener is registered by host and port, as in older releases.
    """
    found = tuple(
        (each.name, told.host, told.port or each.bind.port, each.protocol.value)
        for each in listeners
        if (told := each.advertised) is not None
    )
    return () if [each[0] for each in found] == [PLAINTEXT] else found


class Replaced(Exception):
    """The error after another process has registered as this node, or the node was unregistered."""


class Liveness:
    """The registration of this process, and its heartbeats to the controller."""

    def __init__(
        self,
        config: BrokerConfig,
        controller: ControllerClient,
        raft_group: RaftGroup,
        state: ClusterState,
        *,
        boot_id: str,
        directory_id: bytes,
        incarnation: bytes,
    ) -> None:
        self.broker_epoch = -1
        self.replaced = asyncio.get_running_loop().create_future()
        self._config = config
        self._controller = controller
        self._raft_group = raft_group
        self._state = state
        self._boot_id = boot_id
        self._directory_id = directory_id
        self._incarnation = incarnation
        self._wants_shutdown = False
        self._awaited_index: int | None = None  # an index of the metadata log, see `_is_behind`
        self._may_stop = asyncio.Event()
        self._beat_now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def register(self, port: int) -> int:
        """Register this node, with retries until a controller answers, and return the broker epoch.

        If this node's metadata is outdated, the controller refuses the registration and returns the
        current broker epoch. The registration is then repeated with that epoch. If two processes
        have the same node id, the last registration wins. Raises the controller's error for any
        other refusal.
        """
        first = self._config.first_advertised.advertised
        assert first is not None
        known = self._state.brokers.get(self._config.node_id)
        command = RegisterBroker(
            node_id=self._config.node_id,
            incarnation=self._incarnation,
            boot_id=self._boot_id,
            host=first.host,
            port=first.port or port,
            rack=self._config.broker_rack or None,
            cluster_id=self._config.cluster_id,
            expected_broker_epoch=-1 if known is None else known.broker_epoch,
            directory_id=self._directory_id,
            endpoints=registered_endpoints(self._config.endpoints),
        )
        while True:
            try:
                result = await self._controller.submit(command, timeout_ms=REGISTRATION_ATTEMPT_MS)
            except RequestTimedOut as error:
                logger.warning("the registration failed and is retried: %s", error)
                continue
            if result.error != ErrorCode.STALE_BROKER_EPOCH:
                break
            logger.debug(
                "the controller refused the registration, which is retried: %s", result.message
            )
            command = replace(command, expected_broker_epoch=result.broker_epoch)
        if result.error:
            raise error_for(result.error, result.message)
        self.broker_epoch = result.broker_epoch
        return result.broker_epoch

    async def until_voter(self, raft_groups: Collection[RaftGroup], timeout_s: float) -> bool:
        """Wait until this node votes in these Raft groups, or return False after the timeout.

        A new cluster elects a leader as soon as two nodes vote. If one of these died before the
        third node votes, no leader could be elected. So this node is ready only when it votes.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not all(raft_group.status().is_voter for raft_group in raft_groups):
                    await asyncio.sleep(0.005)
                return True
        logger.warning(
            "node %d serves clients, but does not vote in the Raft groups %s. It "
            "started without a journal, and not every other voter has answered it. "
            "Until all voters have run at the same time, the cluster tolerates one "
            "failure less.",
            self._config.node_id,
            [raft_group.group_id for raft_group in raft_groups if not raft_group.status().is_voter],
        )
        return False

    def start(self, on_answered: Callable[[], None]) -> None:
        """Start the heartbeats, which also ask the controller to unfence this broker.

        on_answered: called after an answer, once this broker has applied the controller's metadata
        at that time, such as the loss of its leaderships.
        """
        self._task = background_task("heartbeats", self._beat(on_answered))

    async def until_unfenced(self) -> None:
        """Wait until this broker is unfenced in its own metadata."""
        while True:
            broker = self._state.brokers.get(self._config.node_id)
            if broker is not None and not broker.is_fenced:
                return
            await asyncio.sleep(0.005)

    async def shut_down(self, timeout_s: float) -> bool:
        """Transfer the leaderships of this broker, or return False after the timeout."""
        self._wants_shutdown = True
        self._beat_now.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._may_stop.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        if self._task is not None:
            await end_tasks(self._task)

    async def _beat(self, on_answered: Callable[[], None]) -> None:
        interval_ms = self._config.broker_heartbeat_interval_ms
        session_s = self._config.broker_session_timeout_ms / 1000
        seen_term = seen_ms = -1
        loop = asyncio.get_running_loop()
        live_s = loop.time()  # the controller has heard from this broker since
        while True:
            heartbeat = Heartbeat(
                self._config.node_id,
                self.broker_epoch,
                self._raft_group.applied_index,
                wants_shutdown=self._wants_shutdown,
                seen_term=seen_term,
                seen_ms=seen_ms,
            )
            is_due = False
            try:
                began_s = loop.time()
                reply = await self._controller.heartbeat(heartbeat, timeout_ms=4 * interval_ms)
                is_late = loop.time() - live_s > session_s
                if reply.term != seen_term or is_late or reply.is_fenced:
                    self._awaited_index = None  # another may have been elected since
                seen_term, seen_ms, live_s = reply.term, reply.stamp_ms, began_s
                self._take_reply(reply)
                is_behind = self._is_behind(reply)
                if not is_behind:
                    on_answered()
                is_due = reply.is_fenced or self._wants_shutdown or is_behind
            except KafkaError as error:
                logger.debug("a heartbeat failed: %s", error)
                # This broker may be isolated, so only a later answer counts.
                self._awaited_index = None
            self._beat_now.clear()
            pause_s = interval_ms / 1000
            if is_due:
                pause_s = min(0.02, pause_s)  # the controller needs a few steps
            elif pause_s >= 0.2:
                # Never later than the interval.
                pause_s = until_tenth_s(loop.time(), pause_s - 0.05)
            # asyncio.timeout, because wait_for before Python 3.12 may swallow a cancellation.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._beat_now.wait()

    def _is_behind(self, reply: HeartbeatReply) -> bool:
        """Return whether this broker has not yet applied the metadata index of a heartbeat reply.

        While the broker is behind, the index of the first such reply is kept, since the index of
        each later reply may be ahead again.
        """
        if self._awaited_index is None:
            self._awaited_index = reply.metadata_index
        if self._raft_group.applied_index < self._awaited_index:
            return True
        self._awaited_index = None
        return False

    def _take_reply(self, reply: HeartbeatReply) -> None:
        if reply.error in _REPLACED and not self.replaced.done():
            self.replaced.set_exception(
                Replaced(
                    f"another process has registered as node {self._config.node_id}"
                    " of this cluster, or it was unregistered; this one stops"
                )
            )
        if reply.may_stop and self._wants_shutdown:
            self._may_stop.set()
