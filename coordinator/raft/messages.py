"""The messages between the Raft engines of two nodes, and their msgpack bytes.

A frame is a list of messages of any groups: `[[group, type, field, ...], ...]`. The number of a
type never changes. If the fields of a message do not match its type, the whole frame is dropped,
since it cannot come from a peer of this version.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

import msgpack

from ...runtime.c_calls import new_tuple

_SMALL_BYTES = 64  # the size of a message without its payload, roughly


class MalformedMessage(ValueError):
    """The error of a frame that no engine of this protocol version would send."""


class AppendEntries(NamedTuple):
    """The leader's entries that follow (`prev_index`, `prev_term`). Without entries a heartbeat."""

    term: int
    commit_index: int
    prev_index: int
    prev_term: int
    entries: list[tuple[int, bytes]]  # (term, command)


class AppendReply(NamedTuple):
    """A follower's answer to AppendEntries. It acknowledges, or refuses, entries of the leader.

    With `success` the entries before `next_index` are durable, and equal to the leader's. Otherwise
    the leader must send the entries from `next_index` on.
    """

    term: int
    success: bool
    next_index: int
    is_voter: bool  # whether the acknowledgement counts for the commit


class Commit(NamedTuple):
    """The leader's new commit index. Followers do not answer this message."""

    term: int
    commit_index: int


class VoteRequest(NamedTuple):
    """A candidate's request for a vote in `term`."""

    term: int
    last_index: int
    last_term: int


class Vote(NamedTuple):
    """A vote for the candidate of `term`."""

    term: int


class PreVoteRequest(NamedTuple):
    """The question whether the receiver would vote for the sender in `term` (Raft thesis, 9.6)."""

    term: int
    last_index: int
    last_term: int


class PreVote(NamedTuple):
    """The answer to a PreVoteRequest for `term`, with the voter's own `current_term`."""

    term: int
    granted: bool
    current_term: int


class TimeoutNow(NamedTuple):
    """The leader's request to a follower to become a candidate at once (leadership transfer)."""

    term: int


class NewerTerm(NamedTuple):
    term: int


class SnapshotChunk(NamedTuple):
    """A part of the leader's snapshot file. Without `data` it asks how much the follower has."""

    term: int
    snapshot_index: int
    snapshot_term: int
    offset: int
    total_bytes: int
    data: bytes


class SnapshotReply(NamedTuple):
    """A follower's answer to SnapshotChunk.

    The follower has the file's bytes before `next_offset`.
    """

    term: int
    snapshot_index: int
    next_offset: int


class Census(NamedTuple):
    """The request of a voter that has lost its votes and its log.

    It asks the receiver for its term and its last index. `nonce` distinguishes this request from
    those of earlier processes.
    """

    nonce: int


class CensusAnswer(NamedTuple):
    """The answer to Census, with the term and the last index of the answering node.

    Both are 0 if the answering node has no log and knows no term, as after the loss of its disk.
    """

    nonce: int
    term: int
    last_index: int


class BrokenPromise(NamedTuple):
    """The leader's message to a follower that lacks entries which it has acknowledged.

    The follower has acknowledged all entries up to `match_index` in this term.
    """

    term: int
    match_index: int


# The position here is the number of a type, which never changes, so only append.
Message = (
    AppendEntries
    | AppendReply
    | Commit
    | VoteRequest
    | Vote
    | PreVoteRequest
    | PreVote
    | TimeoutNow
    | NewerTerm
    | SnapshotChunk
    | SnapshotReply
    | Census
    | CensusAnswer
    | BrokenPromise
)
KINDS: dict[int, type[Message]] = dict(enumerate(get_args(Message), 1))
_NUMBERS = {message: number for number, message in KINDS.items()}
_TYPES = {
    message: tuple(t if t in (int, bool, bytes) else list for t in message.__annotations__.values())
    for message in _NUMBERS
}


def encode_frame(messages: Iterable[tuple[int, Message]]) -> bytes:
    """Encode (group, message) pairs."""
    return msgpack.packb([(group, _NUMBERS[type(m)], *m) for group, m in messages])


def split(
    messages: Sequence[tuple[int, Message]], bytes_max: int
) -> Iterator[list[tuple[int, Message]]]:
    """Split messages into frames below `bytes_max`, unless a single message exceeds it."""
    part: list[tuple[int, Message]] = []
    size = 0
    for pair in messages:
        cost = _SMALL_BYTES
        match pair[1]:
            case AppendEntries(entries=entries):
                cost += sum(len(command) + 16 for _, command in entries)
            case SnapshotChunk(data=data):
                cost += len(data)
            case _:
                pass
        if part and size + cost > bytes_max:
            yield part
            part, size = [], 0
        part.append(pair)
        size += cost
    if part:
        yield part


def decode_frame(payload: bytes) -> list[tuple[int, Message]]:
    """Decode the (group, message) pairs of a frame, or raise MalformedMessage."""
    try:
        rows = msgpack.unpackb(payload, use_list=True)
        return [_decode(row) for row in rows]
    except MalformedMessage:
        raise
    except Exception as error:
        raise MalformedMessage(f"not a Raft frame: {error!r}") from None


def _decode(row: list[Any]) -> tuple[int, Message]:
    group_id, kind, *fields = row
    message_class = KINDS[kind]
    types = _TYPES[message_class]
    if type(group_id) is not int or len(fields) != len(types):
        raise MalformedMessage(f"kind {kind} has {len(fields)} fields")
    for value, expected in zip(fields, types, strict=True):
        if type(value) is not expected or (type(value) is int and value < 0):
            raise MalformedMessage(f"kind {kind} has a field {type(value).__name__}")
    if message_class is AppendEntries:
        for entry in fields[4]:
            term, command = entry
            if type(term) is not int or type(command) is not bytes or not command or term < 0:
                raise MalformedMessage("an entry is not (term, command)")
    return group_id, new_tuple(message_class, fields)
