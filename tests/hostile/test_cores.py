"""Test decoders, TLS and logins with a share of the hostile inputs."""

import random
from pathlib import Path

import pytest

from . import cores
from .cores import attack, cores_of
from .decoders import Errors, Input
from .logins import write_keys


class Broken:
    """A decoder that raises an untyped error for one input."""

    name, share = "broken", 1.0
    errors: Errors = (ValueError,)

    def make(self, rng: random.Random) -> Input:
        return (rng.randbytes(1),)

    def feed(self, data: Input) -> None:
        if data < (b"\x80",):
            raise ValueError
        if data == (b"\xff",):
            raise KeyError(data)


def test_decoder_that_raises_an_untyped_error_is_reported_with_the_input() -> None:
    (found,) = attack([Broken()], random.Random(1), 3_000)
    assert found.data == (b"\xff",) and "KeyError" in found.problem


def test_decoders_given_hostile_bytes_raise_only_typed_errors(tmp_path: Path) -> None:
    write_keys(tmp_path)
    assert attack(cores_of(tmp_path), random.Random(40), 60_000) == []


@pytest.mark.soak
def test_decoders_given_ten_million_inputs_raise_only_typed_errors() -> None:
    assert cores.main(["--inputs", "10000000"]) == 0
