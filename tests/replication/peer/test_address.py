"""Test the socket paths of links between brokers, and the permissions of their directory."""

import os
from pathlib import Path

import pytest

from oncelog.replication.peer.address import (
    PeerSocketError,
    node_of,
    prepare_directory,
    routing_id,
    socket_path,
)


def test_peer_directory_that_is_missing_is_created_for_its_owner_only(tmp_path: Path) -> None:
    prepare_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    prepare_directory(tmp_path / "a" / "b")


def test_peer_directory_that_others_may_enter_is_refused_unchanged(tmp_path: Path) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    os.chmod(directory, 0o750)
    with pytest.raises(PeerSocketError, match="0700"):
        prepare_directory(directory)
    assert directory.stat().st_mode & 0o777 == 0o750


def test_peer_socket_path_that_is_too_long_is_refused_with_advice() -> None:
    longest = Path("/" + "x" * (107 - len("//bulk-1")))
    assert len(str(socket_path(longest, "bulk", 1))) == 107
    with pytest.raises(PeerSocketError, match=r"oncelog\.peer\.directory"):
        socket_path(longest, "bulk", 10)


@pytest.mark.parametrize(
    ("name", "node"),
    [(b"n1", 1), (b"n205", 205), (b"n", None), (b"", None), (b"\0abc", None), (b"n-1", None)],
)
def test_peer_sender_is_identified_by_its_routing_id(name: bytes, node: int | None) -> None:
    assert node_of(name) == node
    if node is not None:
        assert routing_id(node) == name
