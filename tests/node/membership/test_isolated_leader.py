"""Test that a leader without contact to controller and followers refuses writes with acks=all."""

import itertools
from pathlib import Path

import pytest

from oncelog.node.membership.isolated_leader import PARTITIONS_A_STEP, IsolatedLeader
from oncelog.runtime.sliced_work import SlicedWork

from ...awaiting import settle, turns_until
from ..fake_broker import CLOSED
from ..leading_broker import LeadingBroker, StoppedClock, plain

TIMEOUT_MS = 1_500


def isolated_leader(
    directory: Path, **details: object
) -> tuple[LeadingBroker, IsolatedLeader, StoppedClock]:
    clock = StoppedClock()
    broker = LeadingBroker(directory, replicas_clock=clock, **details)  # type: ignore[arg-type]
    broker.replicas.peers.last_fetch_ms[2] = clock.now_ms
    return broker, IsolatedLeader(broker.replicas, session_timeout_ms=TIMEOUT_MS), clock


async def test_isolated_leader_closes_connections_of_waiting_and_new_writes_with_acks_all(
    tmp_path: Path,
) -> None:
    broker, watch, clock = isolated_leader(tmp_path, replicas=(1, 2))
    waiting = broker.put(plain())
    clock.now_ms += TIMEOUT_MS - 1
    watch.look()
    assert not waiting.is_there
    clock.now_ms += 1
    watch.look()
    assert await waiting.value() == CLOSED
    end_offset = broker.log().log_end_offset
    late = broker.put(plain())
    assert await late.value() == CLOSED
    assert broker.log().log_end_offset == end_offset
    loose = broker.put(plain(), acks=1)
    assert await loose.errors() == {0: 0}, "acks=1 asks for no more than this log"
    watch.on_heartbeat_answered()
    again = broker.put(plain())
    assert not again.is_there
    broker.replicate()
    assert await again.errors() == {0: 0}


async def test_isolated_leader_with_fetching_followers_accepts_writes(
    tmp_path: Path,
) -> None:
    broker, watch, clock = isolated_leader(tmp_path, replicas=(1, 2))
    clock.now_ms += TIMEOUT_MS
    broker.replicas.peers.last_fetch_ms[2] = clock.now_ms
    watch.look()
    written = broker.put(plain())
    broker.replicate()
    assert await written.errors() == {0: 0}


@pytest.mark.parametrize("who", ["controller", "follower"])
async def test_isolated_leader_that_recovers_calls_the_callbacks_of_role_changes(
    tmp_path: Path, who: str
) -> None:
    broker, watch, clock = isolated_leader(tmp_path, replicas=(1, 2))
    heard: list[object] = []
    broker.replicas.role_listeners.append(heard.append)
    clock.now_ms += TIMEOUT_MS
    watch.look()
    watch.look()
    (partition,) = broker.replicas.stalled
    assert not heard
    if who == "controller":
        watch.on_heartbeat_answered()
    else:
        broker.replicas.peers.last_fetch_ms[2] = clock.now_ms
        watch.look()
    assert heard == [partition] and not broker.replicas.stalled


async def test_isolated_leader_alone_in_the_isr_accepts_writes(tmp_path: Path) -> None:
    broker, watch, clock = isolated_leader(tmp_path, replicas=(1, 2), isr=(1,))
    clock.now_ms += 2 * TIMEOUT_MS
    watch.look()
    written = broker.put(plain())
    assert await written.errors() == {0: 0}


async def test_isolated_leader_checks_thousands_of_partitions_in_slices(
    tmp_path: Path,
) -> None:
    """A check of 10,000 partitions takes 40 ms, four times in each session timeout."""
    count = 4 * PARTITIONS_A_STEP
    broker, watch, clock = isolated_leader(tmp_path, replicas=(1, 2), partitions=count)
    broker.replicas.work = SlicedWork(itertools.count(0, 0.003).__next__)  # a step a turn
    released: list[object] = []
    broker.replicas.release_waiters = lambda partition, error: released.append(partition)  # type: ignore[method-assign]
    clock.now_ms += TIMEOUT_MS
    watch.look()
    assert not broker.replicas.stalled
    await turns_until(lambda: len(broker.replicas.stalled) == count)
    await turns_until(lambda: bool(released))
    assert len(released) < count
    watch.on_heartbeat_answered()
    await settle(10)
    assert len(released) < count
    assert not broker.replicas.stalled
