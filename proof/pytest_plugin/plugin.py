"""The pytest plugin: a real cluster in tests, faults while they run, and reports when they fail.

    @pytest.mark.oncelog(faults="kill,pause", seed=7)
    def test_nothing_is_lost(oncelog):
        topic = oncelog.topic("orders", partitions=3)
        ...

pytest imports this file in every project where oncelog is installed, so it imports nothing but
pytest. The fixtures import the slow parts. Fixtures:

  oncelog_cluster  a `Cluster` of three nodes for the whole session, one in each worker of xdist
  oncelog          the shared cluster for one test, with fresh names; it is repaired before the
                   test, and topics and open transactions of the test are removed afterwards
  oncelog_factory  starts further clusters, with their own settings, that end with the test

docs/testing.md is the page for users.
"""

import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ...deploy.cluster.local_cluster import Cluster
    from .clusters import Clusters
    from .handle import ClusterInTest

MARKER = (
    "oncelog(nodes=3, faults=None, seed=None, allow_open=False, clock=None): the cluster of the "
    "fixture `oncelog`: how many nodes; faults (kill, stop, pause, partition, one-way, slow, "
    "separated by commas) that strike it while the test runs, drawn from the seed; whether the "
    "test may leave transactions open; clock='controlled': time can be advanced"
)
CLUSTERS: pytest.StashKey["Clusters"] = pytest.StashKey()
HANDLE: pytest.StashKey["ClusterInTest"] = pytest.StashKey()
HAS_FAILED: pytest.StashKey[bool] = pytest.StashKey()
SECTIONS: pytest.StashKey[list[tuple[str, str]]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's command-line options, which concern only tests that use a cluster."""
    group = parser.getgroup("oncelog", "tests with a cluster of oncelog")
    group.addoption(
        "--oncelog-seed",
        type=int,
        metavar="N",
        help="draw faults from this seed instead of the markers' seeds",
    )
    group.addoption(
        "--oncelog-keep",
        action="store_true",
        help="keep the directories of the clusters; failure reports name them",
    )
    group.addoption(
        "--oncelog-secure",
        action="store_true",
        help=(
            "use clusters with TLS, logins and an authorizer, to which tests connect by "
            "client_config()"
        ),
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(specname="pytest_runtest_setup")
def pytest_oncelog_requires_its_fixture(item: pytest.Item) -> None:
    """Fail a test with the marker but without the fixture, since its faults would never be made."""
    if item.get_closest_marker("oncelog") and "oncelog" not in getattr(item, "fixturenames", ()):
        pytest.fail("The marker `oncelog` needs the fixture `oncelog`. Request the fixture too.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """End the faults if a fixture of the test fails."""
    try:
        yield
    except BaseException as problem:
        _stop_faults(item, problem)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """End the faults with the test, because its report needs a cluster that can answer."""
    try:
        yield
    except BaseException as problem:
        _stop_faults(item, problem)
        raise
    _stop_faults(item)


def _stop_faults(item: pytest.Item, problem: BaseException | None = None) -> None:
    handle = item.stash.get(HANDLE, None)
    is_in_a_hurry = isinstance(problem, (KeyboardInterrupt, pytest.exit.Exception))
    if handle is not None and (not is_in_a_hurry or item.config.getoption("usepdb", False)):
        handle.stop_faults()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the cluster's sections to the report of a failed test."""
    report = yield
    if call.excinfo is not None and report.failed:
        report.sections += _outcomes(call.excinfo)
    if CLUSTERS not in item.config.stash:
        return report
    if report.when == "call" or not report.passed:
        item.stash[HAS_FAILED] = not report.passed  # a skipped test makes no promise
    if report.failed:
        handle = item.stash.get(HANDLE, None)
        if handle is not None:
            report.sections += handle.sections()
        elif SECTIONS in item.stash:
            report.sections += item.stash[SECTIONS]
        elif "oncelog_cluster" in getattr(item, "fixturenames", ()):
            report.sections += item.config.stash[CLUSTERS].log_sections()
    return report


def _outcomes(problem: pytest.ExceptionInfo[BaseException]) -> list[tuple[str, str]]:
    """Return sections about each `oncelog.prove` in a failed test, with verdict and seed."""
    module = sys.modules.get("oncelog.proof.prove.outcome")
    if module is None:
        return []
    values = [v for entry in problem.traceback for v in entry.frame.f_locals.values()]
    # `isinstance` on a lazy object may run any code, or raise.
    found = {id(v): v for v in values if type(v) is module.ProveOutcome}
    return [("oncelog prove", str(outcome)) for outcome in found.values()]


@pytest.fixture(scope="session")
def oncelog_clusters(request: pytest.FixtureRequest) -> Iterator["Clusters"]:
    """Yield the clusters of this process. A cluster of a size starts at its first use."""
    from .clusters import Clusters

    clusters = Clusters(
        is_kept=bool(request.config.getoption("--oncelog-keep")),
        is_secured=bool(request.config.getoption("--oncelog-secure")),
    )
    request.config.stash[CLUSTERS] = clusters
    try:
        yield clusters
    finally:
        clusters.close()


@pytest.fixture(scope="session")
def oncelog_cluster(oncelog_clusters: "Clusters") -> "Cluster":
    """Return a `Cluster` of three nodes that lives as long as the session."""
    return oncelog_clusters.shared(3)


@pytest.fixture
def oncelog_factory(oncelog_clusters: "Clusters") -> Iterator[Callable[..., "Cluster"]]:
    """Yield a function that starts a `Cluster` for this test. Call `oncelog_factory(nodes=5)`."""
    made: list[Cluster] = []

    def make(nodes: int = 3, **settings: Any) -> "Cluster":
        made.append(oncelog_clusters.start(nodes, **settings))
        return made[-1]

    try:
        yield make
    finally:
        for cluster in made:
            oncelog_clusters.end(cluster)


@pytest.fixture
def oncelog(
    request: pytest.FixtureRequest, oncelog_clusters: "Clusters"
) -> Iterator["ClusterInTest"]:
    """Yield the `ClusterInTest` with which this test uses a shared cluster."""
    from ...deploy.cluster.failure import Failure
    from .handle import ClusterInTest, read_marker

    item: pytest.Item = request.node
    marker = item.get_closest_marker("oncelog")
    try:
        wanted = read_marker(marker.args if marker else (), marker.kwargs if marker else {})
        cluster = oncelog_clusters.shared(wanted.nodes, wanted.clock)
    except Failure as problem:
        raise pytest.fail.Exception(f"{item.nodeid}: {problem}", pytrace=False) from None
    seed = request.config.getoption("--oncelog-seed")
    if seed is None:
        seed = oncelog_clusters.seed if wanted.seed is None else wanted.seed
    handle = ClusterInTest(
        cluster,
        wanted,
        seed=seed,
        test=item.nodeid,
        number=next(oncelog_clusters.numbers),
        is_kept=oncelog_clusters.is_kept,
    )
    item.stash[HANDLE] = handle
    problems: list[str] = []
    has_begun = False
    try:
        handle.begin()
        has_begun = True
        yield handle
    finally:
        has_failed = item.stash.get(HAS_FAILED, None)
        if has_failed is None:  # no report: interrupted, or never begun
            handle.abandon()
        else:
            problems = handle.finish(has_failed=has_failed)
        if problems or not has_begun:
            item.stash[SECTIONS] = handle.sections()
        del item.stash[HANDLE]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
