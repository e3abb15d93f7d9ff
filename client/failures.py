"""Errors of the client, and the marks that tell a producer how to react to an error.

Every error is a `KafkaError` with a `.code`, and `str()` is a sentence. `.retriable` means that the
same request may succeed later. `.abortable` means that the transaction must be aborted, and that
the producer may then continue. `.fatal` means that the producer cannot continue.

A forked child has its parent's sockets and none of its threads. Requests of the child would mix
with those of the parent, and would never be answered. Therefore a client that was in use raises
ClientClosed in the child, and closes nothing there. The parent is not affected.
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
    """The application made a call that the producer's state does not allow."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionAborted(KafkaError):
    """The record's transaction was aborted before the record was acknowledged."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class ClientClosed(KafkaError):
    """The client was closed before the call or during it, or belongs to the parent of this forked
    process.
    """

    code = ErrorCode.NETWORK_EXCEPTION

    @property
    def retriable(self) -> bool:
        """Return False, because a closed client stays closed and a retry would never end."""
        return False


class NoOffsetForPartition(KafkaError):
    """The consumer has no position in a partition, and auto.offset.reset is none."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class LogTruncated(KafkaError):
    """The log lacks records that were read from it, and auto.offset.reset is none (KIP-320)."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class PartitionNotAssigned(KafkaError):
    """The application named a partition that this consumer does not read."""

    code = ErrorCode.INVALID_REQUEST


class CommitFailed(KafkaError):
    """The offsets were not committed, because the group rebalances, has removed the member, or has
    revoked one of their partitions.
    """

    code = ErrorCode.ILLEGAL_GENERATION


class AnotherBroker(NetworkException):
    """The address now belongs to another broker, or to a broker of another cluster (KIP-1242)."""


class HungUp(NetworkException):
    """The peer closed the connection before it answered anything."""


class SslAuthenticationFailed(KafkaError):
    """The TLS handshake failed, because one side does not trust the other, or because they have no
    TLS version or cipher in common.
    """

    code = ErrorCode.SASL_AUTHENTICATION_FAILED  # Kafka has no code for TLS; this is the nearest


class SecurityProtocolMismatch(KafkaError):
    """The listener speaks another security.protocol than this client."""

    code = ErrorCode.ILLEGAL_SASL_STATE


UNREACHABLE = (NetworkException, RequestTimedOut)
# Another broker or a later try would not help: these are raised at once (KIP-152).
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
    """An object that is notified of forks."""

    def forked(self) -> None:
        """Stop using the parent's connections, in a forked child."""


_clients: "weakref.WeakSet[Forked]" = weakref.WeakSet()


def tell_of_forks(client: Forked) -> None:
    """Call `client.forked` in each forked child, as long as the client exists."""
    _clients.add(client)


def _tell() -> None:
    for client in list(_clients):
        client.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)


def as_abortable(problem: KafkaError) -> KafkaError:
    """Mark an error as abortable and return it. The producer may continue after an abort."""
    problem.abortable = True
    return problem


def as_fatal(problem: KafkaError) -> KafkaError:
    """Mark an error as fatal and return it. The producer cannot continue."""
    problem.fatal = True
    return problem
