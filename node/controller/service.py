"""The controller service of every node, which is active on the leader of the metadata group.

The service answers requests of brokers (registrations, heartbeats, ISR changes, administration) and
proposes commands to the Raft group. It runs the pure rules of `coordinator.controller`, which watch
the brokers, on a timer, after each heartbeat, and when a link breaks.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from ...coordinator.controller.controller import Controller, ControllerSettings, Heartbeat
from ...coordinator.controller.messages import MESSAGE_OF, ControllerReply, ReplyStatus, may_ask
from ...coordinator.controller.quorum import quorum_of
from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.metadata.commands import (
    Command,
    FailReplicas,
    decoding_of,
    encode_command,
    is_encoded,
)
from ...coordinator.metadata.results import Result, encode_result, encoding_of
from ...coordinator.raft.group import RaftGroup
from ...coordinator.raft.outcomes import DefinitelyNot, OutcomeUnknown
from ...replication.messages import PeerMessage
from ...replication.peer.codec import decode_message, encode_message
from ...replication.peer.handlers import Buffer, Reply
from ...replication.peer.transport import PeerTransport
from ...runtime.background_task import TaskSet
from ...runtime.fault_point import FaultPoint, no_fault_point
from ...runtime.rate_limited_log import LimitedLog
from ...runtime.sliced_work import SlicedWork
from ...wire.errors import InvalidRequest, KafkaError
from ..clock import until_tenth_s

TICK_MS = 100
SUBMIT_TIMEOUT_MS = 5_000
# The limit of concurrent requests of clients to propose a command. A broker has only a few requests
# of its own at a time, and the leaders of partitions must not wait for clients.
PROPOSALS_MAX = 1024


class ControllerService:
    """The controller service of one node.

    Create it before the Raft group starts, and `start` it on the event loop.

    now_ms: the monotonic clock. fault_point is called before and after each proposal, with
    "controller.before-propose" and "controller.after-propose".
    """

    def __init__(
        self,
        *,
        node_id: int,
        state: ClusterState,
        raft_group: RaftGroup,
        links: PeerTransport,
        settings: ControllerSettings,
        now_ms: Callable[[], int],
        work: SlicedWork,
        fault_point: FaultPoint = no_fault_point,
    ) -> None:
        self.controller = Controller(state, settings)
        self._raft_group = raft_group
        self._now_ms = now_ms
        self._work = work
        self._tick_ms = min(TICK_MS, settings.clock_step_ms_max // 2)
        self._fault_point = fault_point
        self._links_down: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._asked = 0
        self._log = logging.getLogger(f"{__name__}.{node_id}")
        self._limited_log = LimitedLog(self._log)
        self._tasks = TaskSet(self._log, "a task of the controller failed")
        raft_group.on_elected(self._elected)
        raft_group.on_resigned(self._resigned)
        links.on_peer_change(self._link_changed)
        questions = PeerMessage.HEARTBEAT, PeerMessage.DESCRIBE_QUORUM
        for kind in (*questions, *sorted(set(MESSAGE_OF.values()))):
            links.on_request(kind, self._handler(kind))

    def start(self) -> None:
        """Become active if this node already leads. The Raft group reports later elections."""
        if self._raft_group.is_leader and self._timer is None:
            self._elected(self._raft_group.term)

    async def stop(self) -> None:
        """Stop the service, and abandon its proposals in flight, which may still be committed."""
        self._is_stopped = True
        self._resigned()
        await self._tasks.stop()

    async def serve(self, kind: int, payload: bytes) -> ControllerReply | Result:
        """Answer one request of another broker or of this node.

        Returns the Result object of a command, which is encoded only for another broker.
        """
        if not self._raft_group.is_leader or self._is_stopped:
            leader = self._raft_group.leader_id
            return ControllerReply(
                ReplyStatus.NOT_LEADER, leader_id=-1 if leader is None else leader
            )
        if kind == PeerMessage.HEARTBEAT:
            heartbeat = decode_message(Heartbeat, payload)
            reply = replace(
                self.controller.heartbeat(heartbeat, self._now_ms()),
                metadata_index=self._raft_group.applied_index,
            )
            self._tick()
            return ControllerReply(ReplyStatus.DONE, encode_message(reply))
        if kind == PeerMessage.DESCRIBE_QUORUM:
            quorum = quorum_of(self._raft_group.status(), self._now_ms())
            return ControllerReply(ReplyStatus.DONE, encode_message(quorum))
        is_of_client = kind == PeerMessage.ADMIN and not is_encoded(payload, FailReplicas)
        if is_of_client and self._asked >= PROPOSALS_MAX:
            return ControllerReply(ReplyStatus.RETRY, reason="The controller is overloaded.")
        self._asked += 1
        try:
            return await self._check_and_submit(kind, payload)
        except (DefinitelyNot, OutcomeUnknown) as error:
            return ControllerReply(ReplyStatus.RETRY, reason=str(error))
        finally:
            self._asked -= 1

    async def _check_and_submit(self, kind: int, payload: bytes) -> ControllerReply | Result:
        # Many brokers may send a long command, and one write may commit them all. So such commands
        # and their results are decoded and encoded as jobs of their own.
        command, _ = await self._work.finish("commands", decoding_of(payload))
        if self._is_stopped:
            return ControllerReply(ReplyStatus.RETRY, reason="The controller stops.")
        if not may_ask(kind, command):
            raise InvalidRequest(f"A broker does not propose {type(command).__name__}.")
        return await self._submit(payload)

    # -- events

    def _elected(self, term: int) -> None:
        if self._is_stopped:
            return
        now_ms = self._now_ms()
        self.controller.elected(now_ms, term)
        for node_id in self._links_down:
            self.controller.link_down(node_id, now_ms)
        self._run_timer()

    def _resigned(self) -> None:
        self.controller.resigned()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _link_changed(self, peer: int, is_up: bool) -> None:
        if is_up:
            self._links_down.discard(peer)
            self.controller.link_up(peer)
        else:
            self._links_down.add(peer)
            self.controller.link_down(peer, self._now_ms())
            self._tick()

    def _run_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        pause_s = until_tenth_s(loop.time(), self._tick_ms / 1000)
        self._timer = loop.call_later(pause_s, self._run_timer)
        self._tick()

    def _tick(self) -> None:
        """Propose the commands that are due now."""
        if not self._is_stopped:
            self._propose_all(self.controller.tick(self._now_ms()))

    def _propose_all(self, commands: Iterable[Command]) -> None:
        for command in commands:
            self._tasks.spawn(self._propose(command))

    async def _propose(self, command: Command) -> None:
        result = None
        try:
            result = await self._submit(encode_command(command))
            self._log.info("the command %s ended: %s", command, result.message or "done")
        except (DefinitelyNot, OutcomeUnknown) as error:
            self._log.info("the command %s failed, or its outcome is unknown: %s", command, error)
        finally:
            self.controller.settled(command, result)

    async def _submit(self, command: bytes) -> Result:
        self._fault_point("controller.before-propose")
        try:
            return await self._raft_group.submit(command, timeout_ms=SUBMIT_TIMEOUT_MS)
        finally:
            self._fault_point("controller.after-propose")

    # -- requests of peers

    def _handler(self, kind: PeerMessage) -> Callable[[int, bytes, list[Buffer], Reply], None]:
        def handle(peer: int, header: bytes, _frames: list[Buffer], reply: Reply) -> None:
            self._tasks.spawn(self._answer(peer, kind, header, reply))

        return handle

    async def _answer(self, peer: int, kind: PeerMessage, header: bytes, reply: Reply) -> None:
        try:
            answer = await self.serve(kind, header)
            if isinstance(answer, Result):
                encoding = encoding_of(answer)
                result = await self._work.finish("results of commands", encoding)
                answer = ControllerReply(ReplyStatus.DONE, result)
        except InvalidRequest as error:
            self._limited_log.log(
                logging.WARNING,
                f"{kind.name} from node {peer}",
                asyncio.get_running_loop().time(),
                "an invalid request %s from node %d is refused: %s",
                kind.name,
                peer,
                error,
            )
            answer = ControllerReply(ReplyStatus.DONE, encode_result(_invalid(error)))
        reply(encode_message(answer), ())


def _invalid(error: KafkaError) -> Result:
    return Result(error=error.code, message=str(error))
