"""The state of a member of a newer group (KIP-848), and the member's next heartbeat.

The file does no I/O. There is one request, ConsumerGroupHeartbeat:

    state          the next heartbeat has                      then
    OUTSIDE        none is sent                                JOINING
    JOINING        epoch 0, the whole subscription             RECONCILING with the assignment
    RELEASING      epoch -2, to release the instance id that   JOINING
                   this member may still have in the group
    STABLE         the epoch, and changes                      RECONCILING with another assignment
    RECONCILING    the same, while partitions are              ACKNOWLEDGING
                   revoked and added
    ACKNOWLEDGING  the owned partitions, without a delay       STABLE
    FENCED         none before all partitions are lost         JOINING
    LEAVING        none, while all partitions are revoked      OUTSIDE
    FAILED         none any more

Places are (topic id, partition). After each assignment a heartbeat reports the owned partitions,
even if unchanged, because the coordinator waits for that report. While a report is unanswered, the
member takes no partitions, since the coordinator may give those that it lacks to others. The epoch
is kept after the group has fenced the member, because offsets of earlier records are committed
under that epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from ...wire.errors import ErrorCode

JOINS, LEAVES, LEAVES_FOR_NOW = 0, -1, -2  # member epochs of requests
INTERVAL_MS_MIN = 20  # whatever a broker requests
Place = tuple[bytes, int]
Places = frozenset[Place]
NOWHERE: Places = frozenset()
_E = ErrorCode
_FENCED = (_E.UNKNOWN_MEMBER_ID, _E.FENCED_MEMBER_EPOCH, _E.GROUP_ID_NOT_FOUND)


class MembershipState(Enum):
    OUTSIDE = auto()
    JOINING = auto()
    RELEASING = auto()
    STABLE = auto()
    RECONCILING = auto()
    ACKNOWLEDGING = auto()
    FENCED = auto()
    LEAVING = auto()
    FAILED = auto()


_S = MembershipState
WITHIN = frozenset({_S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING})
SPEAKING = WITHIN | {_S.JOINING, _S.RELEASING}


@dataclass(frozen=True, slots=True, eq=False)
class MemberHeartbeat:
    """The fields of a ConsumerGroupHeartbeat request, with kio's names.

    `topic_partitions` are the owned (topic id, partition), or None if they are not reported.
    """

    member_epoch: int
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    owned: Places | None = None


@dataclass(slots=True)
class Membership:
    """The state of a member. `interval_ms` is the heartbeat interval set by the coordinator."""

    member_id: str
    instance_id: str | None = None
    rebalance_timeout_ms: int = 300_000
    assignor: str | None = None
    rack: str | None = None
    state: MembershipState = _S.OUTSIDE
    epoch: int = -1
    interval_ms: int = 1_000
    names: tuple[str, ...] = ()
    pattern: str | None = None
    target: Places = NOWHERE  # the assignment
    owned: Places = NOWHERE
    _taking: Places = NOWHERE  # owned, too, once the reconciliation has ended
    # as reported and answered; None: nothing
    _told: tuple[tuple[str, ...], str | None, Places] | None = None
    _telling: tuple[tuple[str, ...], str | None, Places] | None = None
    _on_its_way: MemberHeartbeat | None = None
    _is_given: bool = False  # an assignment came, and owned partitions were not reported since
    _may_have_place: bool = False  # the group may still have it as a static member
    _had_pattern: bool = False

    @property
    def wants(self) -> bool:
        """Whether the member is subscribed to anything."""
        return bool(self.names) or self.pattern is not None

    @property
    def identity(self) -> tuple[str, int]:
        """The member id and epoch for offset requests.

        They are "" and -1 before the first join and after leaving. A fenced member keeps them.
        """
        return (self.member_id, self.epoch) if self.epoch >= 0 else ("", -1)

    @property
    def is_within(self) -> bool:
        """Whether the member is in the group, as far as it knows."""
        return self.state in WITHIN

    @property
    def is_urgent(self) -> bool:
        """Whether the next heartbeat is sent immediately, without waiting for the interval."""
        if self.is_within and self._told and self._told[:2] != (self.names, self.pattern):
            return True
        return self.state in (_S.JOINING, _S.RELEASING, _S.ACKNOWLEDGING)

    @property
    def may_take(self) -> bool:
        """Whether the member may take partitions.

        It may not while a heartbeat that reports owned partitions, or has to be repeated, is
        unanswered. The coordinator may give a partition that the report lacks to another member.
        """
        sent = self._on_its_way
        return self._told is not None and (sent is None or sent.owned is None)

    # -- calls of the application

    def subscribe(self, names: tuple[str, ...], pattern: str | None) -> None:
        """Subscribe to topics by name, by a pattern, or both.

        Without a name or pattern, leave the group.
        """
        self.names, self.pattern = names, pattern
        self._had_pattern |= pattern is not None
        if self.wants and self.state is _S.OUTSIDE:
            self.state = _S.JOINING
        elif not self.wants and self.state in SPEAKING:
            self.state = _S.LEAVING

    def takes(self, places: Places) -> None:
        """Record that the member takes these partitions, which later heartbeats report as owned."""
        self._taking = places

    def reconciled(self, owned: Places, target: Places) -> None:
        """Record the owned partitions after an attempt to reach this target."""
        self._taking = NOWHERE
        if self.state is not _S.RECONCILING:
            return
        if owned != self.owned or (self._is_given and self.target == target):
            self.owned, self._is_given = owned, False
            self.state = _S.ACKNOWLEDGING
        elif self.target == target:
            self.state = _S.STABLE  # unknown topics are looked up after the next answer

    def given_up(self) -> None:
        """Leave the FENCED state, after all partitions were lost."""
        if self.state is _S.FENCED:
            self.owned = self._taking = self.target = NOWHERE
            self.state = _S.OUTSIDE
            if self.wants:
                self.state = _S.JOINING
            else:
                self.left()

    def leave(self) -> MemberHeartbeat | None:
        """Leave the group. Return the heartbeat that reports this, or None outside of the group."""
        was = self.state
        self._forget()
        self.owned = self._taking = self.target = NOWHERE
        self.state = was if was is _S.FAILED else _S.OUTSIDE
        return self._leaving() if was in SPEAKING | {_S.LEAVING} else None

    def left(self) -> None:
        """Note that the member has left, so that its offsets carry no epoch until it joins again.

        A member that subscribed during the departure may have joined again already.
        """
        if self.state is _S.OUTSIDE:
            self.epoch = -1
            if self.wants:
                self.state = _S.JOINING

    def too_slow(self) -> MemberHeartbeat | None:
        """Leave the group after max.poll.interval.ms without a poll.

        Return the heartbeat that reports it, or None outside of the group.
        """
        if not self.is_within:
            return None
        self._fence(may_have_place=True)
        return self._leaving()

    def _leaving(self) -> MemberHeartbeat:
        static = self.instance_id is not None
        return MemberHeartbeat(
            LEAVES_FOR_NOW if static else LEAVES, {"instance_id": self.instance_id}
        )

    # -- heartbeats

    def heartbeat(self) -> MemberHeartbeat | None:
        """Return the heartbeat of the present state, or None in a state without heartbeats.

        Then the heartbeat's answer is awaited. The caller observes the interval of heartbeats.
        """
        if self.state not in SPEAKING:
            return None
        if self.state is _S.RELEASING:
            made = MemberHeartbeat(LEAVES_FOR_NOW, {"instance_id": self.instance_id})
        elif self.state is _S.JOINING:
            made = MemberHeartbeat(JOINS, self._everything(), NOWHERE)
            self._telling = self.names, self.pattern, NOWHERE
        else:
            made = self._going_on()
            self._telling = self.names, self.pattern, self.owned
            if self.state is _S.ACKNOWLEDGING:
                self.state = _S.STABLE
        self._on_its_way = made
        return made

    def _everything(self) -> dict[str, Any]:
        return {
            "instance_id": self.instance_id,
            "rack_id": self.rack,
            "rebalance_timeout": self.rebalance_timeout_ms,
            "subscribed_topic_names": self.names,
            "subscribed_topic_regex": self._said_pattern,
            "server_assignor": self.assignor,
        }

    @property
    def _said_pattern(self) -> str | None:
        """The pattern for the next heartbeat. An empty pattern removes an earlier one."""
        return "" if self.pattern is None and self._had_pattern else self.pattern

    def _going_on(self) -> MemberHeartbeat:
        """Return a heartbeat with the changes since the last answer.

        After a lost answer it has everything.
        """
        told = self._told
        if told is None:
            return MemberHeartbeat(self.epoch, self._everything(), self.owned | self._taking)
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        if told[:2] != (self.names, self.pattern):
            fields["subscribed_topic_names"] = self.names
            fields["subscribed_topic_regex"] = self._said_pattern
        is_news = told[2] != self.owned or self.state is _S.ACKNOWLEDGING
        owned = self.owned if is_news else None
        return MemberHeartbeat(self.epoch, fields, owned)

    # -- answers

    def answered(
        self, heartbeat: MemberHeartbeat, epoch: int, interval_ms: int, assignment: Places | None
    ) -> None:
        """Process the answer to a heartbeat.

        With an `assignment` of None the target is unchanged.
        """
        if heartbeat is self._on_its_way and self.state is _S.LEAVING:
            self.epoch = max(self.epoch, epoch)  # the member has yet to commit
        if heartbeat is not self._on_its_way or self.state not in SPEAKING:
            return  # the membership has ended
        self._on_its_way = None
        self._may_have_place = False
        if self.state is _S.RELEASING:
            self.state = _S.JOINING
            return
        self._told = self._telling
        self.epoch, self.interval_ms = epoch, max(interval_ms, INTERVAL_MS_MIN)
        if assignment is not None:
            self.target, self._is_given = assignment, True
        if self.state is _S.JOINING:
            self.state = _S.STABLE
        if self.state is _S.STABLE and self.target != self.owned:
            self.state = _S.RECONCILING

    def lost(self, heartbeat: MemberHeartbeat) -> None:
        """Treat a heartbeat as unanswered, so that the next heartbeat reports everything."""
        if heartbeat is self._on_its_way:
            self._forget()
            self._may_have_place |= heartbeat.member_epoch == JOINS

    def refused(self, heartbeat: MemberHeartbeat, code: int, *, is_retriable: bool) -> None:
        """Process an answer to a heartbeat that has an error code."""
        if heartbeat is not self._on_its_way or self.state not in SPEAKING:
            return
        if self.state in WITHIN and code in _FENCED:
            self._fence(may_have_place=code == _E.FENCED_MEMBER_EPOCH)
        elif self.state is _S.RELEASING and code in (_E.UNKNOWN_MEMBER_ID, _E.GROUP_ID_NOT_FOUND):
            self._forget()
            self._may_have_place = False
            self.state = _S.JOINING  # the old member of that place has left
        elif (
            code == _E.UNRELEASED_INSTANCE_ID and self.state is _S.JOINING and self._may_have_place
        ):
            self._forget()
            self.state = _S.RELEASING
        elif code in (_E.UNKNOWN_MEMBER_ID, _E.FENCED_MEMBER_EPOCH) or is_retriable:
            self.lost(heartbeat)
        else:
            self._forget()
            self.state = _S.FAILED

    def _fence(self, *, may_have_place: bool) -> None:
        self._forget()
        self._may_have_place = may_have_place
        self.state = _S.FENCED

    def _forget(self) -> None:
        self._told = self._telling = self._on_its_way = None
