"""Sliced work of simulated processes, with slices and steps of random size in random order.

A step of the product handles tens or hundreds of entries, to bound its time. The small logs and
groups of a simulation would fit into one step, without other work in between. Therefore a step has
one or a few entries for some seeds. For most seeds the next job is chosen at random. The product
must not rely on the order, which only serves latency.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

from oncelog.coordinator.groups import offset_table
from oncelog.coordinator.metadata.rules import partitions
from oncelog.node.groups import coordinator, removal, shard
from oncelog.node.partitions import log_maintenance, replica_fetcher, roles
from oncelog.node.transactions import (
    marker_sender,
    marker_writer,
    pending_transactions,
    shard_leader,
    shard_timeouts,
)
from oncelog.runtime import sliced_work
from oncelog.runtime.sliced_work import CLIENT_RUN_S, OWN_RUN_S, SlicedWork, WorkLine
from oncelog.storage import local_log
from oncelog.storage.compaction import log_cleaner
from oncelog.storage.directory import partition_offsets
from oncelog.storage.producers import recovery, snapshot, state
from oncelog.storage.segments import retention

SLICE_S = (0.0, 0.006)
SLICE_STEP_S = (0.0, 0.0, 0.0, 0.0002, 0.002, 0.005)
IN_ORDER = 0.3  # share of seeds in which lines are first come, first served
STEPS = (0, 1, 3)  # entries in a step; 0: as released
STEP_SIZES: tuple[tuple[ModuleType, str], ...] = (
    (offset_table, "ENTRIES_A_STEP"),
    (partitions, "PARTITIONS_A_STEP"),
    (coordinator, "GROUPS_A_STEP"),
    (coordinator, "STEPS_AT_ONCE"),
    (removal, "BATCH_RECORDS"),
    (removal, "OFFSETS_AT_ONCE"),
    (shard, "RECORDS_A_STEP"),
    (replica_fetcher, "ANSWERS_A_STEP"),
    (log_maintenance, "LOGS_A_STEP"),
    (roles, "SETTLED_AT_ONCE_MAX"),
    (marker_sender, "ITEMS_A_STEP"),
    (marker_writer, "APPENDS_A_STEP"),
    (pending_transactions, "IDS_A_STEP"),
    (shard_leader, "IDS_A_STEP"),
    (shard_timeouts, "IDS_A_STEP"),
    (local_log, "SNAPSHOT_AT_ONCE_PRODUCERS_MAX"),
    (log_cleaner, "_PRODUCERS_A_STEP"),
    (partition_offsets, "LOGS_A_STEP"),
    (recovery, "HEADERS_A_STEP"),
    (snapshot, "_ENTRIES_A_STEP"),
    (state, "_ENTRIES_A_STEP"),
    (retention, "SEGMENTS_AT_ONCE"),
)


class SliceClock:
    """A clock for `SlicedWork`, which advances at random, so that slices have random lengths."""

    def __init__(self, rng: random.Random) -> None:
        self._random, self._now_s = rng, 0.0

    def __call__(self) -> float:
        self._now_s += self._random.choice(SLICE_STEP_S)
        return self._now_s


@contextmanager
def slices_take_time(rng: random.Random) -> Iterator[None]:
    """Let virtual time pass between two slices while the context is open, so that events can run.

    For most seeds the next job is chosen at random. For the other seeds the jobs of clients either
    alternate, as the broker's own jobs do, or each job ends before the next job begins.
    """
    client_run_s = rng.choice((OWN_RUN_S, CLIENT_RUN_S))
    is_in_order, step = rng.random() < IN_ORDER, rng.choice(STEPS)

    def schedule(self: SlicedWork) -> None:
        if self.is_due:
            self._is_scheduled = True
            asyncio.get_running_loop().call_later(rng.uniform(*SLICE_S), self._turn)

    def any_of_them(self: WorkLine) -> Any:
        jobs = self._jobs
        at = rng.randrange(len(jobs))
        job = jobs[at]
        del jobs[at]
        return job

    with ExitStack() as stack:
        replace = mock.patch.object
        stack.enter_context(replace(SlicedWork, "_schedule", schedule))
        stack.enter_context(replace(sliced_work, "CLIENT_RUN_S", client_run_s))
        if not is_in_order:
            stack.enter_context(replace(WorkLine, "first", any_of_them))
        for module, name in STEP_SIZES if step else ():
            stack.enter_context(replace(module, name, step))
        yield
