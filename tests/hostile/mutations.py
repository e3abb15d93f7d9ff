"""Damage to bytes by flipped bits, false counts and lengths, cuts and repeated pieces."""

import random

EDGES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
LIES = (
    b"\x7f\xff\xff\xff",  # an int32 count, or a length
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xfe",
    b"\x00\x0f\x42\x40",  # a million
    b"\xff\xff\xff\xff\x0f",  # the same as varints
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80",
    b"\xff" * 9 + b"\x01",
    b"\x7f\xff" + b"\xff" * 6,
    b"\x7f\xff",
    b"\x80\x00",
)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return a copy of the bytes with one to four changes, each of which may have no effect."""
    changed = bytearray(data)
    for _ in range(1 + (rng.random() < 0.3) * rng.randrange(4)):
        _damage(rng, changed)
    return bytes(changed)


def _damage(rng: random.Random, data: bytearray) -> None:
    size = len(data)
    if not size:
        data += rng.randbytes(rng.randrange(1, 9))
        return
    at = int(rng.random() * size)
    match int(rng.random() * 9):
        case 0 | 1:
            data[at] ^= 1 << int(rng.random() * 8)
        case 2 | 3:
            data[at] = EDGES[int(rng.random() * 6)]
        case 4 | 5:
            lie = LIES[int(rng.random() * len(LIES))]
            data[at : at + len(lie)] = lie
        case 6:
            del data[at:]
        case 7:
            del data[at : at + rng.randrange(1, 9)]
        case _:
            end = at + rng.randrange(1, 40)
            data[at:at] = data[at:end]
