"""The broker's client of the active controller.

The client gets the leader of the metadata group from the group itself, or from a node that refused
a request because it does not lead. A request is repeated until it is answered or has timed out.
Repetitions are safe: a registration is identified by its incarnation, an ISR change by its epochs,
and any other request by an operation id under which the first outcome is stored.

A result is returned only when this node has applied the log up to it, so the caller sees the effect
in this node's metadata.
"""

import asyncio
import heapq
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from ...coordinator.controller.controller import Heartbeat, HeartbeatReply
from ...coordinator.controller.messages import MESSAGE_OF, ControllerReply, ReplyStatus
from ...coordinator.controller.producer_ids import ProducerIdBlock
from ...coordinator.controller.quorum import Quorum
from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.metadata.commands import (
    AllocateProducerIds,
    AlterPartition,
    Command,
    FailReplicas,
    RegisterBroker,
    encode_command,
    has_items,
    split_command,
)
from ...coordinator.metadata.config_checks import (
    ConfigValidators,
    refuse_invalid_configs,
    with_refusals,
)
from ...coordinator.metadata.results import Result, decode_result, merge_results
from ...coordinator.raft.group import RaftGroup
from ...replication.messages import MalformedPeerMessage, PeerMessage
from ...replication.peer.codec import decode_message, encode_message
from ...replication.peer.transport import PeerError, PeerTransport
from ...runtime.sliced_work import SlicedWork
from ...wire.errors import ErrorCode, KafkaError, RequestTimedOut, error_for
from .service import ControllerService

ATTEMPT_MS = 1_000  # after this time the request is repeated, perhaps to another leader
HEARTBEAT_ATTEMPTS = 4  # the number of attempts that fit into the timeout of one heartbeat
BACKOFF_MS_FIRST, BACKOFF_MS_MAX = 5, 200
DEFAULT_TIMEOUT_MS = 30_000
OPERATION_ID_BYTES = 16
# Requests that are identified by their contents. A lost block of producer ids does no harm.
_NEEDS_NO_ID = (RegisterBroker, AlterPartition, AllocateProducerIds)
# other requests come from clients, and wait in the queue of clients' work
_OF_BROKERS = (*_NEEDS_NO_ID, FailReplicas)


class ControllerClient:
    """The client of the active controller, one for each broker.

    service: the controller service of this node, called directly when this node leads. validators:
    check configurations before they are proposed. Without validators all are accepted. now_ms: the
    monotonic clock.
    """

    def __init__(
        self,
        *,
        node_id: int,
        state: ClusterState,
        raft_group: RaftGroup,
        links: PeerTransport,
        service: ControllerService,
        now_ms: Callable[[], int],
        work: SlicedWork,
        validators: ConfigValidators | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.node_id = node_id
        self.state = state
        self._raft_group = raft_group
        self._links = links
        self._service = service
        self.now_ms = now_ms
        self._work = work
        self._validators = validators
        self._random_bytes = random_bytes
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._producer_ids = ProducerIdBlock()
        self._refill: asyncio.Task[None] | None = None
        self._last_look: asyncio.Task[int] | None = None
        self._next_look: asyncio.Task[int] | None = None  # created, but not sent yet
        raft_group.on_applied(self._applied)

    async def submit(
        self,
        command: Command,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        operation_id: bytes | None = None,
    ) -> Result:
        """Submit a command to the controller, and return its outcome once this node has applied it.

        operation_id: a short command that is repeated under the same id, by any node, is executed
        once. A long command is split into several, some of which may succeed while others fail.
        Raises RequestTimedOut (the command may still be executed) and PolicyViolation (the command
        is too long).
        """
        deadline_ms = self.now_ms() + timeout_ms
        refused = {}
        wanted = command
        if self._validators is not None:
            validating = refuse_invalid_configs(self.state, command, self._validators)
            command, refused = await self._work.finish("configurations", validating)
        result = Result()
        if not refused or has_items(command):
            parts = await self._work.finish("splitting of a command", split_command(command))
            result = merge_results(
                [await self._submit(part, deadline_ms, operation_id) for part in parts]
            )
            await self.until_applied(result.index, deadline_ms)
        merging = with_refusals(wanted, result, refused)
        return await self._work.finish("configurations", merging)

    async def heartbeat(self, heartbeat: Heartbeat, *, timeout_ms: int) -> HeartbeatReply:
        """Send a heartbeat, or raise RequestTimedOut when no controller answers."""
        deadline_ms = self.now_ms() + timeout_ms
        payload = encode_message(heartbeat)
        # Attempts are short, since one that waits for a paused leader would miss the next leader.
        # Attempts are not too short for a slow link, since a late answer is dropped.
        attempt_ms = max(1, timeout_ms // HEARTBEAT_ATTEMPTS)
        answer = await self._request(PeerMessage.HEARTBEAT, payload, deadline_ms, attempt_ms)
        assert isinstance(answer, bytes)
        return decode_message(HeartbeatReply, answer)

    async def describe_quorum(self, *, timeout_ms: int) -> Quorum:
        """Return the state of the metadata group from its leader, or raise RequestTimedOut."""
        deadline_ms = self.now_ms() + timeout_ms
        answer = await self._request(PeerMessage.DESCRIBE_QUORUM, b"", deadline_ms)
        assert isinstance(answer, bytes)
        return decode_message(Quorum, answer)

    async def next_producer_id(self, broker_epoch: int, *, timeout_ms: int = 5_000) -> int:
        """Return an unused producer id, or raise RequestTimedOut or the controller's error."""
        deadline_ms = self.now_ms() + timeout_ms
        while (producer_id := self._producer_ids.take()) is None:
            await self._until(self._fetch_producer_ids(broker_epoch), deadline_ms)
        if self._producer_ids.wants_more:
            self._fetch_producer_ids(broker_epoch)
        return producer_id

    def close(self) -> None:
        """Cancel the requests for producer ids and for the commit index that are in flight."""
        if self._refill is not None:
            self._refill.cancel()
        for look in (self._last_look, self._next_look):
            if look is not None:
                look.cancel()

    async def catch_up(self, deadline_ms: int) -> None:
        """Wait until this node has applied all committed metadata, or until the deadline.

        A client may have learned of a metadata change from another broker before this node has
        applied it. The node asks the leader of the metadata group for its commit index. A call that
        arrives while the node asks waits for the next such request, because the answer on its way
        may be older than the call.
        """
        if self._next_look is None:
            loop = asyncio.get_running_loop()
            look = loop.create_task(self._look_at_commit_index(self._last_look))
            look.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._next_look = self._last_look = look
        look = self._next_look
        # after an error the caller uses the metadata that this node has applied
        with suppress(KafkaError):
            await self._until(look, deadline_ms)
            await self.until_applied(look.result(), deadline_ms)

    async def until_applied(self, index: int, deadline_ms: int) -> None:
        """Wait until this node has applied the metadata log up to index.

        Raises RequestTimedOut.
        """
        if self._raft_group.applied_index < index:
            future = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (index, next(self._numbers), future))
            await self._until(future, deadline_ms)

    async def _look_at_commit_index(self, before: "asyncio.Task[int] | None") -> int:
        if before is not None:
            await asyncio.wait((before,))
        self._next_look = None
        return (await self.describe_quorum(timeout_ms=ATTEMPT_MS)).commit_index

    async def _request(
        self, kind: int, payload: bytes, deadline_ms: int, attempt_ms: int = ATTEMPT_MS
    ) -> bytes | Result:
        backoff_ms = BACKOFF_MS_FIRST
        leader = self._raft_group.leader_id
        reason = "the cluster has no controller"
        while (remaining_ms := deadline_ms - self.now_ms()) > 0:
            redirect = -1
            if leader is not None:
                reply = await self._ask(leader, kind, payload, min(remaining_ms, attempt_ms))
                if isinstance(reply, Result):
                    return reply
                if reply.status == ReplyStatus.DONE:
                    return reply.payload
                reason = reply.reason or f"node {leader} is not the controller"
                redirect = reply.leader_id if reply.leader_id != leader else -1
                attempt_ms = max(attempt_ms, min(3 * attempt_ms, ATTEMPT_MS))
            if redirect >= 0:
                leader = redirect
            else:
                await asyncio.sleep(min(backoff_ms, remaining_ms) / 1000)
                backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)
                leader = self._raft_group.leader_id
        raise RequestTimedOut(f"The controller did not answer in time: {reason}.")

    async def _submit(
        self, command: Command, deadline_ms: int, operation_id: bytes | None = None
    ) -> Result:
        if operation_id is None:
            is_known = isinstance(command, _NEEDS_NO_ID)
            operation_id = b"" if is_known else self._random_bytes(OPERATION_ID_BYTES)
        is_of_client = not isinstance(command, _OF_BROKERS)
        if is_of_client:
            await self._work.share.room()
        payload = encode_command(command, operation_id)
        answer = await self._request(MESSAGE_OF[type(command)], payload, deadline_ms)
        if is_of_client:
            await self._work.share.room()
        return answer if isinstance(answer, Result) else decode_result(answer)

    async def _ask(
        self, leader: int, kind: int, payload: bytes, timeout_ms: int
    ) -> ControllerReply | Result:
        try:
            if leader == self.node_id:
                # wait_for may swallow a cancellation
                async with asyncio.timeout(timeout_ms / 1000):
                    return await self._service.serve(kind, payload)
            header, _ = await self._links.request(leader, kind, payload, timeout_ms=timeout_ms)
            return decode_message(ControllerReply, header)
        except (PeerError, MalformedPeerMessage, TimeoutError) as error:
            return ControllerReply(ReplyStatus.RETRY, reason=str(error))

    def _applied(self, index: int) -> None:
        while self._waiting and self._waiting[0][0] <= index:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    def _fetch_producer_ids(self, broker_epoch: int) -> asyncio.Task[None]:
        """Return the running request for a block of producer ids, or send a new one."""
        if self._refill is None or self._refill.done():
            self._refill = asyncio.get_running_loop().create_task(self._fetch_block(broker_epoch))
            # The block is fetched before it is needed, so its error must be retrieved even if no
            # caller waits.
            self._refill.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._refill

    async def _fetch_block(self, broker_epoch: int) -> None:
        command = AllocateProducerIds(self.node_id, broker_epoch)
        result = await self._submit(command, self.now_ms() + DEFAULT_TIMEOUT_MS)
        if result.error != ErrorCode.NONE:
            raise error_for(result.error, result.message)
        self._producer_ids.add(result.first_producer_id, result.producer_id_count)

    async def _until(self, awaited: asyncio.Future[Any], deadline_ms: int) -> None:
        """Wait for a future that other calls share, without cancelling it.

        Raises RequestTimedOut at the deadline, and the error of the future.
        """
        timeout_ms = max(0, deadline_ms - self.now_ms())
        done, _ = await asyncio.wait((awaited,), timeout=timeout_ms / 1000)
        if not done:
            raise RequestTimedOut("The metadata log did not advance far enough before the timeout.")
        awaited.result()
