"""One TCP connection to one broker, for requests and their answers.

This file follows some rules. A request has a correlation id and a future. The broker answers in
order, but answers are matched by id. A deadline that passes closes the connection, as in Kafka's
own clients, because the late answer must not be taken for the answer to another request. Every
failure is a class of `wire.errors`. `NetworkException` means that the connection was refused, lost
or closed, and `RequestTimedOut` that the deadline has passed. Both are retriable. After both, the
outcome of a request that changes something is unknown. Failures that a retry would not change (an
untrusted certificate, a wrong password) are errors that are not retriable.
"""

import asyncio
import itertools
import ssl
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from ..version import __version__
from ..wire.errors import (
    ErrorCode,
    KafkaError,
    NetworkException,
    RequestTimedOut,
    UnsupportedVersion,
    error_for,
)
from ..wire.framing import API_VERSIONS, FrameReceiver, encode_request_header, frame_response
from ..wire.messages import control
from ..wire.messages.apis import API_NAMES, is_flexible
from ..wire.primitives import Reader
from .failures import AnotherBroker, HungUp

if TYPE_CHECKING:
    from .security.session import SaslSession, Security

IDS_FROM = 5  # of ApiVersions: it names the cluster and broker that is meant
ClusterAndNode = tuple[str, int]  # the ids of a cluster and of one of its brokers

NEWEST = 1 << 15  # as a version: the newest that both sides support
READ_HERE_BYTES_MAX = 32 * 1024  # longer answers are decoded in a thread, not on the event loop
CORRELATION_ID_MAX = 2**31 - 1  # ids wrap after it
SASL = (17, 36)  # SaslHandshake, SaslAuthenticate
CLIENT_SOFTWARE = {"client_software_name": "oncelog", "client_software_version": __version__}
# The versions of each API that this client supports.
SPOKEN: dict[int, tuple[int, int]] = {
    0: (3, 12),  # Produce
    1: (4, 16),  # Fetch; from 13 on by topic id
    2: (1, 8),  # ListOffsets
    3: (4, 13),  # Metadata
    8: (2, 10),  # OffsetCommit; from 10 on by topic id
    9: (2, 9),  # OffsetFetch by topic name
    10: (4, 6),  # FindCoordinator
    11: (0, 9),  # JoinGroup
    12: (0, 4),  # Heartbeat
    13: (3, 5),  # LeaveGroup by members
    14: (0, 5),  # SyncGroup
    15: (0, 6),  # DescribeGroups
    16: (0, 5),  # ListGroups
    17: (1, 1),  # SaslHandshake, for tokens in frames
    API_VERSIONS: (0, 5),
    19: (2, 7),  # CreateTopics
    20: (1, 5),  # DeleteTopics by name
    21: (0, 2),  # DeleteRecords
    22: (0, 6),  # InitProducerId
    23: (2, 4),  # OffsetForLeaderEpoch
    24: (0, 3),  # AddPartitionsToTxn
    25: (0, 4),  # AddOffsetsToTxn
    26: (0, 5),  # EndTxn
    27: (1, 1),  # WriteTxnMarkers
    28: (0, 6),  # TxnOffsetCommit; from 6 on by topic id
    29: (1, 3),  # DescribeAcls
    30: (1, 3),  # CreateAcls
    31: (1, 3),  # DeleteAcls
    32: (1, 4),  # DescribeConfigs
    35: (1, 4),  # DescribeLogDirs
    36: (0, 2),  # SaslAuthenticate
    37: (0, 3),  # CreatePartitions
    42: (0, 2),  # DeleteGroups
    43: (0, 2),  # ElectLeaders
    44: (0, 1),  # IncrementalAlterConfigs
    45: (0, 1),  # AlterPartitionReassignments
    47: (0, 0),  # OffsetDelete
    51: (0, 0),  # AlterUserScramCredentials
    55: (0, 2),  # DescribeQuorum
    57: (1, 2),  # UpdateFeatures
    60: (0, 2),  # DescribeCluster
    61: (0, 0),  # DescribeProducers
    65: (0, 0),  # DescribeTransactions
    66: (0, 2),  # ListTransactions
    68: (0, 1),  # ConsumerGroupHeartbeat
    69: (0, 1),  # ConsumerGroupDescribe
}


class _Stream(asyncio.BufferedProtocol):
    """The asyncio protocol of a connection, which assembles frames from received bytes."""

    def __init__(self, connection: "BrokerConnection") -> None:
        self._connection = connection
        self._receiver = FrameReceiver()

    def get_buffer(self, sizehint: int) -> memoryview:  # type: ignore[override]
        return self._receiver.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._receiver.buffer_updated(nbytes)
        except Exception as problem:
            self._connection.not_understood(self._receiver.peek(4), problem)
            return
        for frame in frames:
            self._connection.answer(frame)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost(exc)

    def pause_writing(self) -> None:
        self._connection.writable.clear()

    def resume_writing(self) -> None:
        self._connection.writable.set()


class BrokerConnection:
    """A connection with negotiated versions, created by `BrokerConnection.open`."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_ms: int,
        security: "Security | None" = None,
    ) -> None:
        self.host, self.port, self.client_id, self.timeout_ms = host, port, client_id, timeout_ms
        self._security = security
        self._session: SaslSession | None = None
        self._problem: KafkaError | None = None  # why it was closed, if a retry would not help
        self.versions: Mapping[int, tuple[int, int]] = {}
        self.features: Mapping[str, int] = {}  # finalized levels, as this broker knows them
        self.writable = asyncio.Event()
        self.writable.set()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, tuple[asyncio.Future[memoryview], bool]] = {}
        self._correlation_ids = itertools.count(1)

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "oncelog",
        timeout_ms: int = 10_000,
        security: "Security | None" = None,
        meant: ClusterAndNode | None = None,
    ) -> Self:
        """Connect, negotiate versions and authenticate.

        Raises NetworkException or, after `timeout_ms`, RequestTimedOut without an answer.
        meant: the expected broker. Another broker is refused with AnotherBroker, if it serves
        version 5 of ApiVersions (KIP-1242). Raises the errors of `security`, which are not
        retriable, and ValueError.
        """
        connection = cls(host, port, client_id, timeout_ms, security)
        loop = asyncio.get_running_loop()
        tls = {} if security is None else await security.tls_options(host)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                transport, _ = await loop.create_connection(
                    lambda: _Stream(connection), host, port, **tls
                )
        except TimeoutError:
            raise RequestTimedOut(f"{host}:{port} took no connection in {timeout_ms} ms") from None
        except ssl.SSLError as problem:
            raise connection._explained(problem) from None
        except OSError as problem:
            if isinstance(problem, ConnectionResetError | ConnectionAbortedError):  # within TLS
                raise HungUp(f"{host}:{port} hung up ({problem or 'no reason given'})") from None
            raise NetworkException(f"{host}:{port} cannot be reached ({problem})") from None
        connection._transport = transport
        try:
            await connection._agree_on_versions(meant)
            if security is not None:
                connection._session = await security.begin_session(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, so that requests can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def version_for(self, api_key: int, *, newest: int = NEWEST) -> int:
        """Return the newest version that both sides support, else raise UnsupportedVersion.

        newest: the newest version that the caller can use.
        """
        ours, theirs = SPOKEN[api_key], self.versions.get(api_key, (0, -1))
        version = min(ours[1], theirs[1], newest)
        if version < max(ours[0], theirs[0]):
            name = API_NAMES.get(api_key, str(api_key))
            raise UnsupportedVersion(
                f"{self.host}:{self.port} serves {name} {theirs[0]}-{theirs[1]}, "
                f"this client speaks {ours[0]}-{ours[1]}"
            )
        return version

    async def call(
        self,
        api_key: int,
        values: dict[str, Any],
        *,
        timeout_ms: int | None = None,
        newest: int = NEWEST,
    ) -> Any:
        """Send a control-plane request with kio's field names. Return the decoded answer.

        The caller reads error codes in the answer. newest: as in `version_for`.
        """
        version = self.version_for(api_key, newest=newest)
        body = control.encode_request(api_key, version, values)
        answer = await self.send(api_key, version, [body], timeout_ms=timeout_ms)
        if len(answer) > READ_HERE_BYTES_MAX:
            return await asyncio.to_thread(control.decode_response, api_key, version, answer)
        return control.decode_response(api_key, version, answer)

    async def send(
        self, api_key: int, version: int, body: Sequence[Any], *, timeout_ms: int | None = None
    ) -> memoryview:
        """Send an encoded request. Return the body of the answer, without its header."""
        correlation_id = self._next_id()
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        flexible = api_key != API_VERSIONS and is_flexible(api_key, version)
        self._waiting[correlation_id] = (future, flexible)
        limit_ms = timeout_ms or self.timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._write(api_key, version, correlation_id, body)
                return await future
        except TimeoutError:
            raise self._too_late(api_key, limit_ms) from None
        finally:
            self._waiting.pop(correlation_id, None)
            if future.done() and not future.cancelled():
                future.exception()  # marks the exception as retrieved

    async def post(self, api_key: int, version: int, body: Sequence[Any]) -> None:
        """Send a request that has no answer (Produce with acks=0)."""
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                await self._write(api_key, version, self._next_id(), body)
        except TimeoutError:
            raise self._too_late(api_key, self.timeout_ms) from None

    def _next_id(self) -> int:
        return next(self._correlation_ids) & CORRELATION_ID_MAX

    def _too_late(self, api_key: int, limit_ms: int) -> KafkaError:
        name = API_NAMES.get(api_key, str(api_key))
        self.fail(f"{name} was not answered in {limit_ms} ms")
        return RequestTimedOut(f"{self.host}:{self.port} did not answer {name} in {limit_ms} ms")

    def answer(self, frame: memoryview) -> None:
        """Complete the future of the request that this frame answers."""
        waiting = self._waiting.get(int.from_bytes(frame[:4], "big", signed=True))
        if waiting is None:
            return  # the request was cancelled
        future, flexible = waiting
        reader = Reader(frame[4:])
        if flexible:
            reader.tags()
        if not future.done():
            future.set_result(frame[4 + reader.position :])

    def fail(self, reason: str, problem: KafkaError | None = None) -> None:
        """Close the connection, and fail all waiting requests.

        They raise `problem`, which a retry would not change, or else NetworkException with
        `reason`.
        """
        self._problem = self._problem or problem
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(self._closed(reason))
        self.close()

    def lost(self, problem: Exception | None) -> None:
        known = self._explained(problem) if isinstance(problem, ssl.SSLError) else None
        if known is not None and known.retriable:
            known = None
        self.fail(f"the connection was lost{f' ({problem})' if problem else ''}", known)

    def not_understood(self, start: bytes, problem: Exception) -> None:
        """Fail the connection, because the bytes that begin with `start` are not a frame."""
        from .security.tls import is_tls, speaks_tls

        known = None
        if not self.versions and is_tls(start):
            known = speaks_tls(f"{self.host}:{self.port}")
        self.fail(f"it sent what is not a Kafka frame ({problem})", known)

    def _explained(self, problem: ssl.SSLError) -> KafkaError:
        from .security.tls import explain

        tls = self._security.config.tls if self._security is not None else None
        assert tls is not None
        return explain(problem, self.host, self.port, tls)

    def _closed(self, reason: str) -> KafkaError:
        if self._problem is not None:
            return type(self._problem)(str(self._problem))
        kind = NetworkException if self.versions else HungUp
        return kind(f"{self.host}:{self.port}: {reason}")

    def close(self) -> None:
        """Close the connection without waiting. Repeated calls are allowed."""
        self.writable.set()
        if self._transport is not None:
            self._transport.abort()

    async def _write(
        self, api_key: int, version: int, correlation_id: int, body: Sequence[Any]
    ) -> None:
        header = encode_request_header(api_key, version, correlation_id, self.client_id)
        session = self._session
        if session is None or api_key in SASL:
            self._put(frame_response(header, list(body)))
        else:
            async with session.write_lock:
                await session.renew_if_due()
                self._put(frame_response(header, list(body)))
        await self.writable.wait()

    def _put(self, pieces: list[Any]) -> None:
        if self._transport is None or self._transport.is_closing():
            raise self._closed("the connection is closed")
        self._transport.writelines(pieces)

    async def _agree_on_versions(self, meant: ClusterAndNode | None) -> None:
        code, versions, features = 0, {}, {}
        for version in (3, 0) if meant is None else (IDS_FROM, 3, 0):
            code, versions, features = await self._ask_versions(version, meant)
            if code != ErrorCode.UNSUPPORTED_VERSION:  # KIP-511: an old broker lists its versions
                break
        if code == ErrorCode.REBOOTSTRAP_REQUIRED and meant is not None:
            raise AnotherBroker(
                f"{self.host}:{self.port} is no longer broker {meant[1]} of cluster {meant[0]}"
            )
        if code:
            raise error_for(code)
        self.versions, self.features = versions, features

    async def _ask_versions(self, version: int, meant: ClusterAndNode | None) -> "_Offer":
        values: dict[str, Any] = {**CLIENT_SOFTWARE} if version else {}
        if meant is not None and version >= IDS_FROM:
            values["cluster_id"], values["node_id"] = meant
        body = control.encode_request(API_VERSIONS, version, values)
        answer = bytes(await self.send(API_VERSIONS, version, [body]))
        refused = int.from_bytes(answer[:2], "big") == ErrorCode.UNSUPPORTED_VERSION
        return _offer(0 if refused else version, answer)


_Offer = tuple[int, Mapping[int, tuple[int, int]], Mapping[str, int]]


@lru_cache(maxsize=16)
def _offer(version: int, answer: bytes) -> _Offer:
    """Return error, versions and features of an ApiVersions answer.

    The result is cached, because the brokers of a cluster offer the same versions.
    """
    decoded = control.decode_response(API_VERSIONS, version, answer)
    is_known = getattr(decoded, "finalized_features_epoch", -1) >= 0
    return (
        int(decoded.error_code),
        {int(k.api_key): (k.min_version, k.max_version) for k in decoded.api_keys},
        {str(f.name): f.max_version_level for f in decoded.finalized_features} if is_known else {},
    )
