"""Test all cases in their short form on one cluster.

A blocked event loop fails the test. Other tests run at the same time, so waits for a processor are
subtracted, and the limit is wide. At these sizes, the bugs that these cases look for once kept a
broker busy for 900 ms to 10 s.
"""

from collections.abc import Iterator

import pytest

from oncelog import Cluster

from .run import play, print_findings
from .stage import judge

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("size")]
LIMIT_MS = 500.0
# Memory is measured over the whole life of a process, so the case that reads it comes first.
SHORT = (
    "unread",
    "tail",
    "flush",
    "repeated",
    "search",
    "compacted",
    "create",
    "delete",
    "restart",
    "members",
    "epochs",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running


@pytest.mark.in_turn
@pytest.mark.parametrize("name", SHORT)
def test_large_cluster_scenario_of_each_kind_stays_within_its_latency_limit(
    cluster: Cluster, name: str
) -> None:
    outcome = judge(play(name, cluster, is_short=True), limit_ms=LIMIT_MS, less_wait=True)
    print_findings(outcome)
    assert outcome.is_good, "; ".join(outcome.problems)
