"""Fixtures with brokers, and a check that answers have no unknown fields."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from oncelog.wire.messages import control

from ..wire.field_names import check_names
from .controller.small_cluster import SmallCluster, running_cluster
from .leading_broker import LeadingBroker


@pytest.fixture(autouse=True)
def every_field_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = control.encode_response

    def checked(api_key, version, values):
        check_names(api_key, "response", values)
        return encode(api_key, version, values)

    monkeypatch.setattr(control, "encode_response", checked)


@pytest.fixture
@asynccontextmanager
async def broker(tmp_path: Path) -> AsyncIterator[LeadingBroker]:
    """Yield a broker that leads t-0, alone in the ISR."""
    yield LeadingBroker(tmp_path)


@pytest.fixture
def cluster() -> AbstractAsyncContextManager[SmallCluster]:
    return running_cluster()
