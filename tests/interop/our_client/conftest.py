"""Our client's tests run against a cluster of ours, and with -m kafka against Apache Kafka."""

from collections.abc import Iterator

import pytest

from ..client_peers import KAFKA, OURS, running


@pytest.fixture(scope="module", params=[OURS, pytest.param(KAFKA, marks=pytest.mark.kafka)])
def bootstrap(request, tmp_path_factory) -> Iterator[str]:
    with running(request.param, tmp_path_factory.mktemp("groups")) as line:
        yield line
