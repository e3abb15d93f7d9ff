"""The addresses of brokers' links, and the access to them."""

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


def test_a_missing_directory_is_made_for_the_owner_alone(tmp_path: Path) -> None:
    prepare_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    prepare_directory(tmp_path / "a" / "b")


def test_a_directory_that_others_may_enter_is_refused_and_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    os.chmod(directory, 0o750)
    with pytest.raises(PeerSocketError, match="0700"):
        prepare_directory(directory)
    assert directory.stat().st_mode & 0o777 == 0o750


def test_a_path_too_long_for_a_socket_is_refused_with_the_remedy() -> None:
    longest = Path("/" + "x" * (107 - len("//bulk-1")))
    assert len(str(socket_path(longest, "bulk", 1))) == 107
    with pytest.raises(PeerSocketError, match=r"oncelog\.peer\.directory"):
        socket_path(longest, "bulk", 10)


@pytest.mark.parametrize(
    ("name", "node"),
    [(b"n1", 1), (b"n205", 205), (b"n", None), (b"", None), (b"\0abc", None), (b"n-1", None)],
)
def test_a_sender_is_known_by_its_routing_id(name: bytes, node: int | None) -> None:
    assert node_of(name) == node
    if node is not None:
        assert routing_id(node) == name
