"""Fixtures for the tests of group members."""

import pytest

from .scene import Scene


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a member of the newer group protocol that has not joined its group."""
    return Scene(monkeypatch)
