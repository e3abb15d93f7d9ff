"""The leader of one partition, with its followers' progress, the ISR, and the high watermark.

The high watermark is the lowest log end offset in the maximal in-sync set. That set has the members
that the controller has confirmed, and the members that the controller may have added already
(KIP-497). The high watermark does not rise while the confirmed ISR is smaller than
min.insync.replicas (KIP-966), and never falls. A follower that has caught up but is not a member
yet also limits the high watermark, as long as the follower keeps up. Otherwise, under steady load,
the follower could never reach the high watermark, which is the condition for joining the ISR.

The log stores the high watermark. Every event here (`appended`, `flushed`, `follower_fetched`, an
ISR change, `tick`) returns the new high watermark, or None if unchanged. The caller passes the
result to `raise_high_watermark` of the replica manager. Only that method raises a leader's high
watermark, and completes the requests that wait for it. A follower gets the high watermark from its
leader (`node/partitions/replica_fetcher.py`).

The leader's own copy counts up to `own_end_offset`, which excludes records that must still be
flushed.

A fetch for offset n means that the follower's log has everything below n. The fetch counts only if
the shell has found the follower's log to be a prefix of the leader's
(`replica_server.judge_position`), and if the fetch comes from the follower's current incarnation
(broker epoch, KIP-903).

Times are monotonic milliseconds.
"""

from collections.abc import Iterable
from typing import Protocol

from ..runtime.c_calls import new_tuple
from .follower_progress import UNKNOWN_OFFSET, FetchedOutcome, FollowerProgress, PeerView
from .isr_change import UNKNOWN_BROKER_EPOCH, AfterFailure, IsrChange, IsrMember, after_failure

_IGNORED = FetchedOutcome(False)
_NOTED = FetchedOutcome(True)
_LONG_AGO_MS = -(1 << 62)


class CommittedLog(Protocol):
    @property
    def high_watermark(self) -> int: ...


class PartitionLeader:
    """One term (leader epoch) as the leader of one partition."""

    def __init__(
        self,
        *,
        node_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        min_insync_replicas: int,
        log: CommittedLog,
        log_end_offset: int,
        now_ms: int,
        lag_time_max_ms: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        peers: PeerView | None = None,
        own_end_offset: int | None = None,
    ) -> None:
        self.node_id = node_id
        self.broker_epoch = broker_epoch  # of this broker
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.isr = frozenset(isr)
        self.log_end_offset = log_end_offset
        self.own_end_offset = log_end_offset if own_end_offset is None else own_end_offset
        self.epoch_start_offset = log_end_offset
        self._log = log
        self._min_insync_replicas = min_insync_replicas
        self._lag_time_max_ms = lag_time_max_ms
        self._peers = peers or PeerView()
        # Proposed to the controller, without an answer yet.
        self.pending_isr_change: IsrChange | None = None
        self._maximal_isr = self.isr
        self._weigh()
        assert node_id in self.isr, "only a member of the ISR leads"
        # Members get the full lag time from now; other followers must fetch first.
        self.followers = {
            node: FollowerProgress(node, now_ms if node in self.isr else _LONG_AGO_MS)
            for node in self.replicas
            if node != node_id
        }

    # -- events of the log and of the followers

    def appended(self, log_end_offset: int, now_ms: int, *, is_flushed: bool = True) -> int | None:
        """Record the log end after an append.

        Unless `is_flushed`, the leader's copy does not count towards the high watermark until
        `flushed` is called. Returns the new high watermark, or None if it does not rise.
        """
        previous_end = self.log_end_offset
        assert log_end_offset >= previous_end, "a leader never truncates"
        self.log_end_offset = log_end_offset
        if is_flushed:
            self.own_end_offset = log_end_offset
        if not self.followers:
            return self._next_high_watermark(now_ms)
        last_fetch_ms = self._peers.last_fetch_ms
        for follower in self.followers.values():
            if follower.log_end_offset == previous_end:
                # The follower was at the end at its last fetch, and lags from now on.
                seen_ms = last_fetch_ms.get(follower.node_id, follower.last_fetch_ms)
                follower.last_caught_up_ms = max(follower.last_caught_up_ms, seen_ms)
        return self._next_high_watermark(now_ms) if len(self._maximal_isr) == 1 else None

    def flushed(self, offset: int, now_ms: int) -> int | None:
        """Record the offset up to which the leader's own log is flushed.

        Returns the new high watermark, or None if it does not rise.
        """
        if offset <= self.own_end_offset:
            return None
        self.own_end_offset = offset
        return self._next_high_watermark(now_ms)

    def follower_fetched(
        self,
        node_id: int,
        broker_epoch: int,
        fetch_offset: int,
        now_ms: int,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> FetchedOutcome:
        """Record that a follower's log has all records below `fetch_offset`.

        The caller has checked that the follower's log does not diverge below `fetch_offset`. A
        follower is caught up if it has reached the leader's log end of now, or of its previous
        fetch.
        """
        follower = self.followers.get(node_id)
        if (
            follower is None
            or broker_epoch < follower.broker_epoch
            or broker_epoch < self._peers.live.get(node_id, UNKNOWN_BROKER_EPOCH)
        ):
            return _IGNORED
        assert fetch_offset <= self.log_end_offset, "the follower's log diverges"
        if broker_epoch > follower.broker_epoch:  # nothing is known about a new incarnation
            follower.broker_epoch = broker_epoch
            follower.leader_end_at_last_fetch = UNKNOWN_OFFSET
            if follower.last_fetch_ms:
                follower.last_caught_up_ms = _LONG_AGO_MS
        leader_end = self.log_end_offset
        if fetch_offset >= leader_end:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)
        elif fetch_offset >= follower.leader_end_at_last_fetch != UNKNOWN_OFFSET:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
        moved = follower.log_end_offset != fetch_offset
        follower.log_end_offset = fetch_offset
        follower.log_start_offset = log_start_offset
        follower.leader_end_at_last_fetch = leader_end
        follower.last_fetch_ms = now_ms
        if node_id in self.isr:
            joins = False
        else:
            joins = self.pending_isr_change is None and self._may_join(follower, now_ms)
        # A follower outside the ISR can limit the high watermark, so its progress can raise it.
        raised = self._next_high_watermark(now_ms) if moved else None
        if not joins and raised is None:
            return _NOTED
        return new_tuple(FetchedOutcome, (True, raised, joins))

    # -- the ISR

    @property
    def is_settled(self) -> bool:
        """Return whether all replicas are in the ISR and at the log end, and no change is pending.

        While that is true, the ISR does not change, even without fetches, until an append or a
        change by the controller.
        """
        end, isr = self.log_end_offset, self.isr
        return (
            self.pending_isr_change is None
            and len(isr) == len(self.followers) + 1
            and all(f.log_end_offset == end and f.node_id in isr for f in self.followers.values())
        )

    def next_isr_change(self, now_ms: int) -> IsrChange | None:
        """Return the ISR change to propose now, which is then pending, or None if the ISR is right.

        Returns None while another change is pending. A member leaves if it has not been caught up
        for lag_time_max_ms. A follower joins if four conditions hold (KIP-841, KIP-903). It keeps
        up. It is at or beyond the high watermark and the start of this leader epoch. It is live. It
        has the incarnation that the controller knows.
        """
        if self.pending_isr_change is not None:
            return None
        followers = self.followers
        leaving = {
            node
            for node in self.isr
            if node != self.node_id
            and not (node in followers and self._is_caught_up(followers[node], now_ms))
        }
        joining = {
            node
            for node, follower in followers.items()
            if node not in self.isr and self._may_join(follower, now_ms)
        }
        if not leaving and not joining:
            return None
        members = (self.isr - leaving) | joining
        self.pending_isr_change = change = IsrChange(
            self.leader_epoch,
            self.partition_epoch,
            tuple(
                IsrMember(node, self._broker_epoch_of(node))
                for node in self.replicas
                if node in members
            ),
        )
        # A leaving member still counts, since the controller may refuse.
        self._maximal_isr = self.isr | joining
        return change

    def isr_change_failed(self, change: IsrChange, error: int) -> IsrChange | None:
        """Record the failure of an ISR change, and return the change to send again.

        `error` is the code of a Kafka error. Returns None if no change is to be sent. A refusal
        restores the confirmed ISR. If this broker's metadata is outdated, the change stays pending
        until `metadata_applied`. Any other error (a timeout, an unknown outcome) is retried,
        because a duplicate of a compare-and-set does no harm.
        """
        if self.pending_isr_change is not change:
            return None
        what = after_failure(error)
        if what is AfterFailure.RETRY:
            return change
        if what is AfterFailure.RESTORE:
            self.pending_isr_change = None
            self._maximal_isr = self.isr
        return None

    def isr_change_succeeded(
        self, change: IsrChange, isr: Iterable[int], partition_epoch: int, now_ms: int
    ) -> int | None:
        """Apply an ISR that the controller has confirmed.

        Returns the new high watermark, or None if it does not rise.
        """
        if self.pending_isr_change is not change or partition_epoch < self.partition_epoch:
            return None
        return self._confirm(frozenset(isr), partition_epoch, now_ms)

    def metadata_applied(
        self,
        *,
        isr: Iterable[int],
        partition_epoch: int,
        now_ms: int,
        replicas: Iterable[int] | None = None,
        min_insync_replicas: int | None = None,
    ) -> int | None:
        """Apply the partition's metadata of the same leader epoch.

        Only a higher partition epoch ends a pending change, since at the same epoch the controller
        may still confirm it. Returns the new high watermark, or None if it does not rise.
        """
        if min_insync_replicas is not None:
            self._min_insync_replicas = min_insync_replicas
            self._weigh()
        if partition_epoch <= self.partition_epoch:
            return self._next_high_watermark(now_ms)
        if replicas is not None:
            self.replicas = tuple(replicas)
            self.followers = {
                node: self.followers.get(node) or FollowerProgress(node, _LONG_AGO_MS)
                for node in self.replicas
                if node != self.node_id
            }
        return self._confirm(frozenset(isr), partition_epoch, now_ms)

    def tick(self, now_ms: int) -> int | None:
        """Return the new high watermark, or None if it does not rise.

        It may rise with time, since a follower that lags no longer limits it.
        """
        return self._next_high_watermark(now_ms)

    # -- questions

    def low_watermark(self, own_log_start_offset: int) -> int:
        """Return the lowest log start offset of the live replicas, as DeleteRecords reports it."""
        live = self._peers.live
        offsets = [f.log_start_offset for f in self.followers.values() if f.node_id in live]
        return min([own_log_start_offset, *offsets])

    # -- rules

    def _confirm(self, isr: frozenset[int], partition_epoch: int, now_ms: int) -> int | None:
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.pending_isr_change = None
        self._maximal_isr = isr
        self._weigh()
        return self._next_high_watermark(now_ms)

    def _weigh(self) -> None:
        """Set `min_insync_replicas` and `is_under_min_isr` from the replicas and the confirmed ISR.

        The minimum is at most the number of replicas.
        """
        self.min_insync_replicas = min(self._min_insync_replicas, len(self.replicas))
        self.is_under_min_isr = len(self.isr) < self.min_insync_replicas

    def _next_high_watermark(self, now_ms: int) -> int | None:
        """Return the new high watermark, or None if it does not rise."""
        if self.is_under_min_isr:
            return None
        lowest = self.own_end_offset
        for follower in self.followers.values():
            if follower.log_end_offset < lowest and self._holds_back(follower, now_ms):
                lowest = follower.log_end_offset
        return lowest if lowest > self._log.high_watermark else None

    def _holds_back(self, follower: FollowerProgress, now_ms: int) -> bool:
        return follower.node_id in self._maximal_isr or (
            self._is_caught_up(follower, now_ms) and self._is_eligible(follower)
        )

    def _is_caught_up(self, follower: FollowerProgress, now_ms: int) -> bool:
        return (
            follower.log_end_offset == self.log_end_offset
            or now_ms - follower.last_caught_up_ms <= self._lag_time_max_ms
        )

    def _may_join(self, follower: FollowerProgress, now_ms: int) -> bool:
        """Return whether a follower may join the ISR, by Kafka's rule and two more conditions.

        The follower must have fetched recently, because this check also runs in `tick`, and not
        only after a fetch as in Kafka. It must be caught up, so that it is not removed again
        immediately. While the ISR is below its minimum, the high watermark does not rise, and a
        broken follower beyond the high watermark would otherwise join and leave forever.
        """
        node = follower.node_id
        of_peer_ms = self._peers.last_fetch_ms.get(node, _LONG_AGO_MS)
        last_contact_ms = max(follower.last_fetch_ms, of_peer_ms)
        return (
            follower.log_end_offset >= self._log.high_watermark
            and follower.log_end_offset >= self.epoch_start_offset
            and now_ms - last_contact_ms <= self._lag_time_max_ms
            and self._is_caught_up(follower, now_ms)
            and self._is_eligible(follower)
        )

    def _is_eligible(self, follower: FollowerProgress) -> bool:
        """Return whether the follower is live, with the incarnation that the controller knows."""
        return (
            follower.broker_epoch != UNKNOWN_BROKER_EPOCH
            and self._peers.live.get(follower.node_id) == follower.broker_epoch
        )

    def _broker_epoch_of(self, node: int) -> int:
        return self.broker_epoch if node == self.node_id else self.followers[node].broker_epoch
