"""Test a query's requests about topics and offsets, and changes between two requests."""

import itertools
import socket
import time
from typing import Any

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.pipeline.source import cluster_lookup
from oncelog.pipeline.source.cluster_lookup import ClusterLookup
from oncelog.pipeline.source.options import OptionError, Topics

_numbers = itertools.count()


def test_deleted_topic_of_a_pattern_does_not_delay_the_other_topics(
    cluster: Cluster, admin: BlockingAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is deleted after the metadata request, so its leader will not answer."""
    prefix = f"lookup-{next(_numbers)}"
    admin.create_topic(f"{prefix}-kept", partitions=1)
    admin.create_topic(f"{prefix}-gone", partitions=1)
    ask, rounds = cluster_lookup.list_offsets, list[set[str]]()

    async def after_its_end(view: Any, wanted: Any, **more: Any) -> Any:
        rounds.append({topic for topic, _ in wanted})
        if len(rounds) == 1:
            await cluster_lookup.Admin(view).delete_topics([f"{prefix}-gone"])
        return await ask(view, wanted, **more)

    monkeypatch.setattr(cluster_lookup, "list_offsets", after_its_end)
    monkeypatch.setattr(cluster_lookup, "ROUND_MS_MAX", 500)
    topics = Topics(pattern=f"{prefix}-.*")
    lookup = ClusterLookup({"bootstrap.servers": cluster.bootstrap}, topics, is_committed=True)
    begun_s = time.monotonic()
    try:
        known = lookup.known(must_exist=False)
    finally:
        lookup.close()
    assert list(known.bounds) == [(f"{prefix}-kept", 0)]
    assert rounds[0] == {f"{prefix}-kept", f"{prefix}-gone"} and rounds[-1] == {f"{prefix}-kept"}
    assert time.monotonic() - begun_s < 20, "and not LOOKUP_MS_MAX"


def test_source_without_a_reachable_broker_fails_soon_with_a_one_line_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster_lookup, "REACH_S", 0.4)
    config = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    lookup = ClusterLookup(config, Topics(names=("t",)), is_committed=True)
    try:
        with pytest.raises(OptionError, match=r"servers=127\.0\.0\.1.*no broker answers"):
            lookup.known()
    finally:
        lookup.close()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].endswith("and does the cluster run?")


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]
