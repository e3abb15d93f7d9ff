"""What tests of members share."""

import pytest

from .scene import Scene


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A member of the newer protocol, outside its group."""
    return Scene(monkeypatch)
