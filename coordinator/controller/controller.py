"""The controller, which checks that brokers are alive and proposes the consequences.

The controller is the leader of the metadata group. This pure core holds the state that is not
replicated. For each broker this is the time of its last contact, and what its last heartbeat asked
for (to be unfenced, to shut down). `tick` compares this state with the replicated state and returns
the commands that are due. Its caller in node/controller proposes the commands, and passes each
result to `settled`. A lost command becomes due again. The core only proposes. A FenceBroker command
may arrive late or twice, so the metadata state machine checks the broker epoch in the command and
decides.

A broker must both send and receive. If its links were cut in one direction, a broker would send
heartbeats forever and apply no metadata. Therefore each reply has a stamp (term and awake_ms),
which the next heartbeat returns. A broker that has received no reply for DEAF_SESSIONS sessions is
treated as silent.

Session timeouts are measured by a clock that runs only while this process runs. After a pause of
this process (SIGSTOP, an overloaded machine) every broker would seem silent although none has
failed.

All `now_ms` are monotonic milliseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...wire.errors import ErrorCode
from ...wire.identifiers import TopicPartition
from ..metadata.cluster_model import BrokerRegistration
from ..metadata.cluster_tables import ClusterTables
from ..metadata.commands import (
    PREFERRED,
    BeginControlledShutdown,
    Command,
    ElectLeaders,
    FenceBroker,
    SetClusterId,
    SetDefaults,
    UnfenceBroker,
)
from ..metadata.results import Result

DEAF_SESSIONS = 2  # a stamp is returned by the next heartbeat, so it is older than a contact
# The limit of preferred elections in one command, as Kafka's maxElectionsPerImbalance.
ELECTIONS_MAX = 1000
ELECTIONS_NAME_BYTES_MAX = 40_000  # the limit of topic names in such a command


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """The settings of a controller.

    cluster_id and defaults are those of this node. The first leader of the group sets the cluster
    id, and every new leader updates the defaults.
    """

    cluster_id: str
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    session_timeout_ms: int = 1500
    rebalances_leaders: bool = True
    rebalance_interval_ms: int = 300_000

    @property
    def clock_step_ms_max(self) -> int:
        """Return the most milliseconds by which one tick advances the clock of broker sessions."""
        return self.session_timeout_ms // 4


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A broker's heartbeat to the controller.

    applied_index: the index up to which the broker has applied the metadata log. wants_unfence: the
    broker's listener serves. seen_term, seen_ms: the stamp of the last reply that the broker
    received, -1 before the first.
    """

    node_id: int
    broker_epoch: int
    applied_index: int
    wants_unfence: bool = True
    wants_shutdown: bool = False
    seen_term: int = -1
    seen_ms: int = -1


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The controller's answer to a heartbeat.

    error: after STALE_BROKER_EPOCH or BROKER_ID_NOT_REGISTERED the broker must register again.
    may_stop: the controlled shutdown is complete. term, stamp_ms: the stamp, which the broker's
    next heartbeat returns. metadata_index: the index up to which the controller has applied the
    metadata log.
    """

    error: int = ErrorCode.NONE
    is_fenced: bool = True
    may_stop: bool = False
    term: int = -1
    stamp_ms: int = -1
    metadata_index: int = -1


@dataclass(slots=True)
class _Session:
    broker_epoch: int
    last_contact_ms: int  # by the clock `Controller._awake_ms`
    last_seen_reply_ms: int  # the time of the newest reply known to have arrived, by the same clock
    link_is_down: bool = False
    wants_unfence: bool = False
    wants_shutdown: bool = False
    applied_index: int = -1
    handed_over_index: int = 0  # the metadata index from which on this broker leads nothing


class Controller:
    """The controller. It proposes commands only between the calls of `elected` and `resigned`."""

    def __init__(self, state: ClusterTables, settings: ControllerSettings) -> None:
        self._state = state
        self._settings = settings
        self._sessions: dict[int, _Session] = {}
        self._under_way: dict[object, Command] = {}
        self._leads = False
        self._term = -1
        self._awake_ms = 0
        self._last_seen_ms = 0
        self._next_rebalance_ms = 0

    def elected(self, now_ms: int, term: int) -> None:
        """Begin a term as leader. All session timeouts start again."""
        self._leads, self._term = True, term
        self._sessions.clear()
        self._under_way.clear()
        self._last_seen_ms = now_ms
        self._next_rebalance_ms = self._awake_ms + self._settings.rebalance_interval_ms

    def resigned(self) -> None:
        """End the term as leader."""
        self._leads = False
        self._sessions.clear()
        self._under_way.clear()

    def heartbeat(self, heartbeat: Heartbeat, now_ms: int) -> HeartbeatReply:
        """Record a broker's heartbeat, and return the reply.

        The next tick acts on what the heartbeat asks for.
        """
        self._advance_clock(now_ms)
        broker = self._state.brokers.get(heartbeat.node_id)
        if broker is None:
            return HeartbeatReply(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if broker.broker_epoch != heartbeat.broker_epoch:
            return HeartbeatReply(ErrorCode.STALE_BROKER_EPOCH)
        session = self._session_of(broker)
        session.last_contact_ms = self._awake_ms
        if heartbeat.seen_term == self._term:
            session.last_seen_reply_ms = max(session.last_seen_reply_ms, heartbeat.seen_ms)
        session.link_is_down = False
        session.wants_unfence = heartbeat.wants_unfence
        session.wants_shutdown = heartbeat.wants_shutdown
        session.applied_index = max(session.applied_index, heartbeat.applied_index)
        return HeartbeatReply(
            is_fenced=broker.is_fenced,
            may_stop=broker.is_fenced and heartbeat.wants_shutdown,
            term=self._term,
            stamp_ms=self._awake_ms,
        )

    def link_down(self, node_id: int, now_ms: int) -> None:
        """Treat a broker's session as expired, since its connection broke and was not reopened."""
        self._advance_clock(now_ms)
        broker = self._state.brokers.get(node_id)
        if self._leads and broker is not None:
            session = self._session_of(broker)
            session.link_is_down = True
            session.wants_unfence = False

    def link_up(self, node_id: int) -> None:
        """Record that the connection to a broker is open again."""
        session = self._sessions.get(node_id)
        if session is not None:
            session.link_is_down = False

    def tick(self, now_ms: int) -> list[Command]:
        """Return the commands that are due. Call it often, and after each event."""
        self._advance_clock(now_ms)
        if not self._leads:
            return []
        due: list[Command] = []
        self._add(due, "cluster", self._cluster_command())
        for node_id in sorted(self._state.brokers):
            if node_id not in self._under_way:
                self._add(due, node_id, self._broker_command(self._state.brokers[node_id]))
        if self._awake_ms >= self._next_rebalance_ms:
            self._next_rebalance_ms = self._awake_ms + self._settings.rebalance_interval_ms
            self._add(due, "leaders", self._preferred_election_command())
        return due

    def settled(self, command: Command, result: Result | None) -> None:
        """Record the result of a command that `tick` returned, or None for an unknown result."""
        for key, under_way in list(self._under_way.items()):
            if under_way is command:
                del self._under_way[key]
        if isinstance(command, BeginControlledShutdown) and result is not None:
            session = self._sessions.get(command.node_id)
            if session is not None and session.broker_epoch == command.broker_epoch:
                session.handed_over_index = result.index

    def _add(self, due: list[Command], key: object, command: Command | None) -> None:
        if command is not None and key not in self._under_way:
            self._under_way[key] = command
            due.append(command)

    def _cluster_command(self) -> Command | None:
        defaults = dict(self._settings.defaults)
        if not self._state.cluster_id and self._settings.cluster_id:
            return SetClusterId(self._settings.cluster_id, defaults)
        if self._state.defaults != defaults:
            return SetDefaults(defaults)
        return None

    def _broker_command(self, broker: BrokerRegistration) -> Command | None:
        node_id, epoch = broker.node_id, broker.broker_epoch
        session = self._session_of(broker)
        timeout_ms = self._settings.session_timeout_ms
        is_silent = self._awake_ms - session.last_contact_ms > timeout_ms
        is_deaf = self._awake_ms - session.last_seen_reply_ms > DEAF_SESSIONS * timeout_ms
        is_gone = is_silent or is_deaf or session.link_is_down
        if broker.is_fenced:
            if (
                session.wants_unfence
                and not session.wants_shutdown
                and not is_gone
                and session.applied_index >= epoch
            ):
                return UnfenceBroker(node_id, epoch)
            return None
        if is_gone:
            return FenceBroker(node_id, epoch)
        if session.wants_shutdown:
            if broker.is_active:
                return BeginControlledShutdown(node_id, epoch)
            if self._has_handed_over(node_id, session):
                return FenceBroker(node_id, epoch)
        return None

    def _has_handed_over(self, node_id: int, session: _Session) -> bool:
        """Return whether a broker leads no partition, and every live broker has learned that."""
        return not self._state.leads_any(node_id) and all(
            self._session_of(self._state.brokers[other]).applied_index >= session.handed_over_index
            for other in self._state.live_brokers
        )

    def _preferred_election_command(self) -> Command | None:
        if not self._settings.rebalances_leaders:
            return None
        state = self._state
        partitions: list[TopicPartition] = []
        name_bytes = 0
        for key in state.imbalanced_partitions():
            partition = state.topics[key[0]].partitions[key[1]]
            if partition.replicas[0] in partition.isr:
                partitions.append(key)
                name_bytes += len(key[0])
                if len(partitions) == ELECTIONS_MAX or name_bytes > ELECTIONS_NAME_BYTES_MAX:
                    break
        return ElectLeaders(PREFERRED, tuple(partitions)) if partitions else None

    def _session_of(self, broker: BrokerRegistration) -> _Session:
        session = self._sessions.get(broker.node_id)
        if session is None or session.broker_epoch != broker.broker_epoch:
            session = _Session(broker.broker_epoch, self._awake_ms, self._awake_ms)
            self._sessions[broker.node_id] = session
        return session

    def _advance_clock(self, now_ms: int) -> None:
        """Advance the clock of broker sessions, except for pauses of this process."""
        elapsed_ms = max(0, now_ms - self._last_seen_ms)
        self._awake_ms += min(elapsed_ms, self._settings.clock_step_ms_max)
        self._last_seen_ms = now_ms
