"""Test `python -m tests.size.soak` as a whole, which needs an hour and 40 GB of free disk."""

import pytest

from .soak import main


@pytest.mark.soak
@pytest.mark.cluster
def test_large_cluster_soak_keeps_all_data_and_limits_after_kills(
    request: pytest.FixtureRequest,
) -> None:
    if "soak" not in str(request.config.getoption("-m")):
        pytest.skip("runs with -m soak")
    assert main([]) == 0, "the table and what is over its limits are printed above"
