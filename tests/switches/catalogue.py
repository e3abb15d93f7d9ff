"""The switches (planted bugs, for mutation testing), with their effects and expected anomalies.

`found_as` has anomalies of docs/judge.md, or words of an invariant's sentence. A switch is detected
if at least one of them is found. `scenario` is the run that leads to the bug (see scenarios_*).
"""

from dataclasses import dataclass

from . import (
    broken_decisions,
    broken_epochs,
    broken_groups,
    broken_logs,
    broken_nodes,
    broken_slices,
)
from .patching import Install

RAFT_ALONE = "raft"  # its own simulation, without brokers


@dataclass(frozen=True, slots=True)
class Switch:
    name: str
    breaks: str
    install: Install
    scenario: str
    found_as: frozenset[str]
    shape: str = ""  # of the random simulation that finds it; "": the seeds' own; or RAFT_ALONE

    @property
    def plays_on_processes(self) -> bool:
        """Return whether the scenario also runs on real processes, in a short time."""
        apart = ("raft-", "power-", "cleaned-", "silent-")
        return not self.is_left_to_chance and not self.scenario.startswith(apart)

    @property
    def is_left_to_chance(self) -> bool:
        """Return whether the bug has no directed scenario, so random simulation must find it."""
        return self.scenario.startswith("random")


def _switch(name: str, install: Install, scenario: str, *found_as: str, shape: str = "") -> Switch:
    breaks = (install.__doc__ or "").strip().removesuffix(".")
    shape = shape or scenario.partition("random-")[2]
    return Switch(name, breaks, install, scenario, frozenset(found_as), shape)


_ALL = (
    _switch("no-dedupe", broken_logs.no_dedupe, "lost-answer", "duplicate"),
    _switch("no-window", broken_logs.no_window, "lost-answer", "probe-failed",
            "duplicate", shape="links"),
    _switch("no-epoch-check", broken_logs.no_epoch_check, "zombie", "zombie-write", "G1a"),
    _switch("no-coordinator-epoch", broken_logs.no_coordinator_epoch, "late-marker",
            "unseen", "lost-write", "torn-transaction", "coordinator-epoch-fell"),
    _switch("first-marker-only", broken_decisions.first_marker_only, "two-partitions",
            "lso-stuck", "torn-transaction"),
    _switch("no-stable-offset", broken_logs.no_stable_offset, "open-transaction",
            "dirty-read", "read-past-open"),
    _switch("no-guard", broken_logs.no_guard, "late-produce", "lso-stuck", "G1a",
            shape="links"),
    _switch("early-acknowledgement", broken_logs.early_acknowledgement, "lone-leader",
            "unseen", "lost-write"),
    _switch("lone-high-watermark", broken_logs.lone_high_watermark, "lone-leader",
            "inconsistent-offsets", "unseen"),
    _switch("no-truncation", broken_logs.no_truncation, "lone-leader",
            "replica-divergence"),
    _switch("no-resumption", broken_decisions.no_resumption, "dead-coordinator",
            "lso-stuck", "torn-transaction", "unseen"),
    _switch("early-offsets", broken_decisions.early_offsets, "aborted-offsets",
            "offset-gap", "input-lost"),
    _switch("unchecked-snapshot", broken_logs.unchecked_snapshot, "flipped-bit",
            "derived-file", "probe-failed"),
    _switch("forgotten-vote", broken_decisions.forgotten_vote, "raft-elections",
            "two leaders", "votes for", shape=RAFT_ALONE),
    _switch("no-sync", broken_decisions.no_sync, "raft-power-cuts",
            "lost", "without", "damaged",
            "node ended", "applied differs", "unseen", "lost-write", shape="power"),
    _switch("no-flush", broken_logs.no_flush, "power-cut", "unseen", "lost-write"),
    _switch("no-connection-fence", broken_decisions.no_connection_fence, "late-end",
            "G1a", "torn-transaction", shape="links"),
    _switch("reused-producer-ids", broken_decisions.reused_producer_ids, "two-producers",
            "inconsistent-offsets", "unseen"),
    _switch("same-epoch-after-timeout", broken_decisions.same_epoch_after_timeout, "timeout",
            "torn-transaction", "unseen"),
    _switch("no-prepare-index", broken_logs.no_prepare_index, "random-links",
            "ended-early", "marker-against-decision", "torn-transaction", "dirty-read", "G1a",
            "unseen", "lost-write"),
    _switch("shared-tables", broken_nodes.shared_tables, "random", "unhandled"),
    _switch("latched-directory", broken_nodes.latched_directory, "random-disks",
            "not opened", "node ended"),
    _switch("latched-log", broken_nodes.latched_log, "random", "failed by a read"),
    _switch("late-recovery-point", broken_nodes.late_recovery_point, "random-power",
            "value lost", "leader lacks records", "member lacks records"),
    _switch("early-recovery-point", broken_nodes.early_recovery_point, "random-disks",
            "hole in a log", "leader lacks records", "member lacks records", "lost-write"),
    _switch("index-by-path", broken_nodes.index_by_path, "random-power",
            "derived-file", "lost-write"),
    _switch("deaf-leader", broken_nodes.deaf_leader, "random", "deaf and not fenced"),
    _switch("early-commits", broken_groups.early_commits, "random", "commit-undone"),
    _switch("failed-load", broken_groups.failed_load, "random", "unhandled"),
    _switch("taken-too-early", broken_groups.taken_too_early, "hasty-member", "held-twice"),
    _switch("no-member-epoch", broken_groups.no_member_epoch, "stale-epoch", "fenced-commit"),
    _switch("no-assignment-epoch", broken_groups.no_assignment_epoch, "returned-partition",
            "fenced-commit"),
    _switch("lent-instance", broken_groups.lent_instance, "replaced-member", "fenced-commit"),
    _switch("no-session-after-load", broken_groups.no_session_after_load, "silent-member",
            "probe-failed"),
    _switch("lost-replay", broken_groups.lost_replay, "departed-member", "probe-failed"),
    _switch("old-pattern-result", broken_groups.old_pattern_result, "late-topic", "probe-failed"),
    _switch("early-heartbeats", broken_groups.early_heartbeats, "lone-coordinator",
            "member-epoch-fell"),
    _switch("downgrade-in-two-batches", broken_groups.downgrade_in_two_batches,
            "dead-in-downgrade", "member-epoch-fell"),
    _switch("no-classic-generation", broken_groups.no_classic_generation, "former-generation",
            "fenced-commit"),
    _switch("last-epoch", broken_epochs.last_epoch, "random", "not alive", "unhandled"),
    _switch("strict-marker", broken_epochs.strict_marker, "random", "not alive"),
    _switch("unchecked-reads", broken_logs.unchecked_reads, "random-damage",
            "damage believed", "replica-divergence"),
    _switch("believed-time", broken_logs.believed_time, "random", "expired"),
    _switch("cleaned-by-name", broken_slices.cleaned_by_name, "cleaned-key",
            "probe-failed", "value lost"),
    _switch("returning-group", broken_slices.returning_group, "random", "group back"),
    _switch("reused-generation", broken_groups.reused_generation, "random", "two-owners"),
    _switch("believed-index", broken_slices.believed_index, "random-damage",
            "damage believed", "lost-write", "unseen", "poll-skip", "value lost"),
    _switch("former-transaction", broken_slices.former_transaction, "random",
            "not alive", "lso-stuck", "G1a", "torn-transaction", "dirty-read"),
)  # fmt: skip
SWITCHES = {switch.name: switch for switch in _ALL}
