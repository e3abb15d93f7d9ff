"""Fixtures of the tests of group members."""

import pytest

from .scene import Scene


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a member of the newer group protocol, without its group."""
    return Scene(monkeypatch)
