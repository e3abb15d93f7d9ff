"""What went wrong on the client's side, and what an error means to a producer.

Every error is a `KafkaError`: `.code`, `.retriable` (the same request may succeed later),
`.abortable` (the transaction must be aborted, then the producer may go on), `.fatal` (this producer
cannot go on), and `str()` is a sentence.

A child of a fork has the sockets of its parent and none of its threads: what it asked would go out
between the parent's requests, and nothing would answer it. So a client that was in use raises
ClientClosed in the child, and closes nothing there. The parent goes on.
"""

import os
import weakref
from typing import Protocol

from ..wire.errors import (
    ErrorCode,
    IllegalSaslState,
    KafkaError,
    NetworkException,
    RequestTimedOut,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)


class IllegalProducerState(KafkaError):
    """A call that does not fit the producer's state; a mistake of the program."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionAborted(KafkaError):
    """The record's transaction was aborted before the record was acknowledged."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class ClientClosed(KafkaError):
    """The client was closed before it was done."""

    code = ErrorCode.NETWORK_EXCEPTION

    @property
    def retriable(self) -> bool:
        """Who tries again with a client that is closed would try for ever."""
        return False


class NoOffsetForPartition(KafkaError):
    """No position is known and auto.offset.reset is none."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class LogTruncated(KafkaError):
    """The log no longer holds what was read from it, and auto.offset.reset is none (KIP-320)."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class PartitionNotAssigned(KafkaError):
    """A call about a partition that this consumer does not read."""

    code = ErrorCode.INVALID_REQUEST


class CommitFailed(KafkaError):
    """The group has gone on without this member: its offsets were not committed."""

    code = ErrorCode.ILLEGAL_GENERATION


class AnotherBroker(NetworkException):
    """The address belongs to another broker now, or to one of another cluster (KIP-1242)."""


class HungUp(NetworkException):
    """Who took the connection closed it before anything was answered."""


class SslAuthenticationFailed(KafkaError):
    """TLS was not agreed on: who answers is not trusted, or does not trust us."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED  # Kafka has no number for TLS: the nearest


class SecurityProtocolMismatch(KafkaError):
    """The listener speaks another security.protocol than this client."""

    code = ErrorCode.ILLEGAL_SASL_STATE


UNREACHABLE = (NetworkException, RequestTimedOut)
# What another broker or a later try would not change: it is raised at once (KIP-152).
NOT_TRUSTED = (
    SslAuthenticationFailed,
    SecurityProtocolMismatch,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    IllegalSaslState,
)


FORKED = (
    "the client was opened before this process was forked, and its connections are the parent's: "
    "make a client of its own after the fork"
)


class Forked(Protocol):
    """A client, or a part of one."""

    def forked(self) -> None:
        """Use the parent's connections no more; called in the child."""


_clients: "weakref.WeakSet[Forked]" = weakref.WeakSet()


def tell_of_forks(client: Forked) -> None:
    """Call `client.forked` in each child, as long as there is such a client."""
    _clients.add(client)


def _tell() -> None:
    for client in list(_clients):
        client.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)


def as_abortable(problem: KafkaError) -> KafkaError:
    """The same error, marked: abort, then go on."""
    problem.abortable = True
    return problem


def as_fatal(problem: KafkaError) -> KafkaError:
    """The same error, marked: this producer cannot go on."""
    problem.fatal = True
    return problem
