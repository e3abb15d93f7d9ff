"""What the leader of one partition knows of its followers, and what follows from it.

The high watermark is the lowest log end offset over the maximal in-sync set: the members the
controller has confirmed, plus those whose admission is under way (KIP-497: the controller may
have added them already, and may elect them). It stands still while the confirmed ISR is smaller
than min.insync.replicas (KIP-966), and it never moves back. A follower that has caught up but
is not a member yet holds it too, for as long as it keeps up: else under steady load it could
never be seen at or beyond the high watermark, which is the ticket into the ISR.

The log keeps the high watermark. Whatever happens here (`appended`, `flushed`, `follower_fetched`,
an ISR change, `tick`) comes to an offset that it rises to, or None, for `raise_high_watermark` of
the replica manager: the one place where a leader's rises, and where those who wait for it are
freed. A follower takes over its leader's (`node/partitions/replica_fetcher.py`).

Our own copy counts up to `own_end_offset`: while a flush is owed, not to the log end.

A fetch for offset n says: everything below n is in my log. It counts only when the shell has
found the follower's log to be a prefix of ours (`replica_reads.judge`), and when it comes from
the follower's present incarnation (broker epoch, KIP-903).

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
    """One term (leader epoch) of leading one partition."""

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
        self.broker_epoch = broker_epoch  # ours
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
        self.pending_isr_change: IsrChange | None = None  # on its way to the controller
        self._maximal_isr = self.isr
        self._weigh()
        assert node_id in self.isr, "only a member of the ISR leads"
        # Members get a full lag time from now; the others must show themselves first.
        self.followers = {
            node: FollowerProgress(node, now_ms if node in self.isr else _LONG_AGO_MS)
            for node in self.replicas
            if node != node_id
        }

    # -- events of the log and of the followers

    def appended(self, log_end_offset: int, now_ms: int, *, is_flushed: bool = True) -> int | None:
        """Note that our log has grown; what the high watermark rises to with it.

        Unless `is_flushed` our copy does not count for it before `flushed` says so.
        """
        previous_end = self.log_end_offset
        assert log_end_offset >= previous_end, "a leader never truncates"
        self.log_end_offset = log_end_offset
        if is_flushed:
            self.own_end_offset = log_end_offset
        if not self.followers:
            return self._raised_high_watermark(now_ms)
        last_fetch_ms = self._peers.last_fetch_ms
        for follower in self.followers.values():
            if follower.log_end_offset == previous_end:
                # It was at the end when its session last spoke; from here on it lags.
                seen_ms = last_fetch_ms.get(follower.node_id, follower.last_fetch_ms)
                follower.last_caught_up_ms = max(follower.last_caught_up_ms, seen_ms)
        return self._raised_high_watermark(now_ms) if len(self._maximal_isr) == 1 else None

    def flushed(self, offset: int, now_ms: int) -> int | None:
        """Note that our copy counts up to `offset`; what the high watermark rises to."""
        if offset <= self.own_end_offset:
            return None
        self.own_end_offset = offset
        return self._raised_high_watermark(now_ms)

    def follower_fetched(
        self,
        node_id: int,
        broker_epoch: int,
        fetch_offset: int,
        now_ms: int,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> FetchedOutcome:
        """Note that a follower holds everything below fetch_offset.

        The caller has checked that the follower's log does not diverge below fetch_offset.
        Caught up = at our end now, or at what our end was at its previous fetch.
        """
        follower = self.followers.get(node_id)
        if (
            follower is None
            or broker_epoch < follower.broker_epoch
            or broker_epoch < self._peers.live.get(node_id, UNKNOWN_BROKER_EPOCH)
        ):
            return _IGNORED
        assert fetch_offset <= self.log_end_offset, "the follower's log diverges"
        if broker_epoch > follower.broker_epoch:  # a new incarnation starts from nothing known
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
        # An outsider can hold the high watermark back, so its progress can free it too.
        raised = self._raised_high_watermark(now_ms) if moved else None
        if not joins and raised is None:
            return _NOTED
        return new_tuple(FetchedOutcome, (True, raised, joins))

    # -- the ISR

    @property
    def is_settled(self) -> bool:
        """All replicas are in sync and at our end, as the controller knows.

        Then nobody joins or leaves, however long nobody fetches, before something is appended or
        decided.
        """
        end, isr = self.log_end_offset, self.isr
        return (
            self.pending_isr_change is None
            and len(isr) == len(self.followers) + 1
            and all(f.log_end_offset == end and f.node_id in isr for f in self.followers.values())
        )

    def next_isr_change(self, now_ms: int) -> IsrChange | None:
        """The ISR shrink or expand to propose now, if any; it is pending until told otherwise.

        Out goes who has not been caught up for lag_time_max_ms; in comes who keeps up, is at
        or beyond the high watermark and the start of this leader epoch, live, and in the
        incarnation the controller knows (KIP-841, KIP-903).
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
        # A member on its way out still counts: the controller may say no.
        self._maximal_isr = self.isr | joining
        return change

    def isr_change_failed(self, change: IsrChange, error: int) -> IsrChange | None:
        """The change to send again after this error (Kafka error code), or None.

        A refusal restores the confirmed ISR. When we are behind the metadata the change stays
        pending until `metadata_applied`. Anything else (time-out, unknown outcome) is retried:
        the change is a compare-and-set, so a second copy does no harm.
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
        """Take over the controller's answer; what the high watermark rises to."""
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
        """Take over the replicated partition record of the same leader epoch.

        Only a higher partition epoch ends a pending change: at the same one the controller
        may still be about to confirm it. Returns what the high watermark rises to.
        """
        if min_insync_replicas is not None:
            self._min_insync_replicas = min_insync_replicas
            self._weigh()
        if partition_epoch <= self.partition_epoch:
            return self._raised_high_watermark(now_ms)
        if replicas is not None:
            self.replicas = tuple(replicas)
            self.followers = {
                node: self.followers.get(node) or FollowerProgress(node, _LONG_AGO_MS)
                for node in self.replicas
                if node != self.node_id
            }
        return self._confirm(frozenset(isr), partition_epoch, now_ms)

    def tick(self, now_ms: int) -> int | None:
        """What the high watermark rises to: outsiders that stopped keeping up hold it no longer."""
        return self._raised_high_watermark(now_ms)

    # -- questions

    def low_watermark(self, own_log_start_offset: int) -> int:
        """The lowest log start offset over the live replicas: DeleteRecords waits for it."""
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
        return self._raised_high_watermark(now_ms)

    def _weigh(self) -> None:
        """What acks=all needs (never more than there are replicas), and whether it is there."""
        self.min_insync_replicas = min(self._min_insync_replicas, len(self.replicas))
        self.is_under_min_isr = len(self.isr) < self.min_insync_replicas

    def _raised_high_watermark(self, now_ms: int) -> int | None:
        """What the high watermark rises to now, if it does."""
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
        """Kafka's rule, and two conditions that Kafka has by other means or not at all.

        Kafka looks only when the follower fetches; we also look on ticks, so it must have been
        heard of lately. And who would have to leave at once does not enter: while the ISR is
        below its minimum the high watermark stands still, and a follower that stopped beyond
        it would go in and out for ever.
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
        """Live, and the incarnation that fetched is the one the controller knows."""
        return (
            follower.broker_epoch != UNKNOWN_BROKER_EPOCH
            and self._peers.live.get(follower.node_id) == follower.broker_epoch
        )

    def _broker_epoch_of(self, node: int) -> int:
        return self.broker_epoch if node == self.node_id else self.followers[node].broker_epoch
