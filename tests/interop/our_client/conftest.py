"""Clusters for tests of oncelog's client, one of oncelog and, with -m kafka, Apache Kafka.

Both start once. The tests that take `bootstrap` belong to one xdist group, and each test has its
own topics, groups and transactional ids.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..client_peers import KAFKA, OURS, running


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = item.path.parent == Path(__file__).parent
        if is_here and "bootstrap" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("our client"))


@pytest.fixture(scope="session", params=[OURS, pytest.param(KAFKA, marks=pytest.mark.kafka)])
def bootstrap(request, tmp_path_factory) -> Iterator[str]:
    if request.param == KAFKA:
        yield request.getfixturevalue("kafka_that_prepares")
        return
    with running(OURS, tmp_path_factory.mktemp("groups")) as line:
        yield line
