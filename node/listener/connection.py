"""One client's connection, which receives requests and sends answers in the order of the requests.

The rule of order (Kafka mutes a channel while it handles a request): a request starts when all
earlier requests of its connection are answered. Only a produce request may start behind unanswered
produce requests, of which there are at most PIPELINED_MAX, because they are appended in order while
their answers wait for replicas. Their answers are still sent in order. Requests that may not start
yet wait here, and the socket is not read meanwhile, so a client can fill only the memory of one
read.

The socket is also not read while the client does not read its answers (the transport's write buffer
is full), or while all connections together hold too much memory.
"""

import asyncio
import socket
from collections import deque
from functools import partial
from typing import cast

from ...wire.framing import Buffer, RefusedFrame
from ..linux import since_last_data_ms, unacknowledged_bytes
from .closing import CloseConnection, UnservedRequest
from .connection_state import Answer, ConnectionState
from .dispatch import Api
from .pending_answer import PendingAnswer
from .tls.reasons import NOT_PLAIN, is_tls

PIPELINED_MAX = 64
REQUESTS_AT_A_STRETCH = 32  # after this number other connections are served
REQUESTS_AT_FIRST = 2  # for a new connection, whose first requests are ApiVersions and Metadata
# The limit of unsent bytes that the memory budget does not count.
WRITE_BUFFER_HIGH_BYTES = 64 * 1024
PASSING_SILENCE_MAX_S = 2.0
BYTES_S_MIN = 64 * 1024  # the slowest client that is served while memory is short
SIZE_PREFIX_BYTES = 4
NO_API = -1


class Connection(ConnectionState):
    """The asyncio protocol of one connection, created by the server."""

    __slots__ = ()

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the server to admit the connection."""
        # uvloop's transports do not derive from asyncio's classes.
        self._transport = transport = cast(asyncio.Transport, transport)
        peer_socket = transport.get_extra_info("socket")
        if peer_socket is not None:
            peer_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer = transport.get_extra_info("peername")
        self.peer_host = peer[0] if isinstance(peer, tuple) else ""
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        self.context = self._server.admit(self)
        if self.context is None:
            self.abort()
        elif peer_socket is not None:
            self.context.waited_ms = partial(since_last_data_ms, peer_socket)
        if self.context is not None and self.context.is_muted:  # too many begin
            self._steer_reading()
            self._server.loop.call_soon(self._pause_again)

    def _pause_again(self) -> None:
        """Pause reading again, since uvloop always starts to read after `connection_made`."""
        if self._is_reading_paused and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the memory of the connection, and abandon its requests.

        Waiting requests are abandoned within the time budget of a turn of the event loop, since all
        clients of a machine may disconnect together, each with requests for hundreds of partitions.
        """
        self.closing_since_s = self.closing_since_s or self._server.now_s
        in_flight, self._in_flight = self._in_flight, deque()
        self._frames.clear()
        for answer, *_ in in_flight:
            if isinstance(answer, PendingAnswer):
                answer.abandon(self._server.share)
        budget = self._server.budget
        budget.remove(self)
        budget.release(self.held_bytes + self._unsent_bytes)
        self.held_bytes = self._unsent_bytes = 0
        self._server.removed(self)
        if self.context is not None:
            self.context.is_closed, self.context.resume = True, None
            callbacks, self.context.on_close = self.context.on_close, []
            for callback in callbacks:
                callback()
        self._transport = None  # with TLS the transport refers back to this connection

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next read."""
        budget, buffer = self._server.budget, self._receiver.get_buffer(sizehint)
        return buffer if budget.held_bytes <= budget.limit_bytes else budget.room(self, buffer)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle received bytes, and start the complete requests in order."""
        server = self._server
        self.last_active_s = server.now_s
        self.held_bytes += nbytes
        server.budget.held_bytes += nbytes
        try:
            frames = self._receiver.buffer_updated(nbytes)
        except RefusedFrame as error:
            self._malformed = NOT_PLAIN if is_tls(self._receiver.peek(2)) else str(error)
            frames = error.frames
        if self.closing_since_s is not None:
            return
        unframed = self._unframed_bytes + nbytes
        for frame in frames:
            unframed -= len(frame) + SIZE_PREFIX_BYTES
        self._unframed_bytes = unframed
        if not unframed:
            self.partial_since_s = None
        elif frames or self.partial_since_s is None:
            self.partial_since_s = server.now_s
        if frames:
            server.budget.finished_request(self)
            self._frames.extend(frames)
            self._advance()
        self._steer_reading()

    def eof_received(self) -> bool:
        """Note that the client sends nothing more, and return whether the connection stays open.

        As in Kafka, the requests that it has sent are handled and answered, since the client may
        have closed only its own direction.
        """
        self._has_ended = True
        self._server.budget.finished_request(self)
        self._receiver.drop_incomplete()
        self._release(self._unframed_bytes)
        self._unframed_bytes, self.partial_since_s = 0, None
        self._server.client_ended(self)
        self._close_after_end()
        return self.closing_since_s is None

    def _close_after_end(self) -> None:
        """Close the connection once the last byte of its last answer is sent."""
        transport = self._transport
        if not self.has_requests and transport is not None and self.closing_since_s is None:
            transport.set_write_buffer_limits(high=0)  # any unsent byte calls `pause_writing`
            if not self._is_writing_paused:
                self.closing_since_s = self._server.now_s
                transport.close()

    def pause_writing(self) -> None:
        """Start no more requests, since the client does not read its answers."""
        assert self._transport is not None
        self._is_writing_paused = True
        self.stalled_since_s, self._untaken_bytes = self._server.now_s, 0
        # The transport keeps all of an answer in memory until its last byte is sent.
        answer_bytes = sum(map(len, self._writing))
        self._unsent_bytes = max(answer_bytes, self._transport.get_write_buffer_size())
        self._server.budget.hold(self._unsent_bytes)

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self.stalled_since_s = None
        self.last_active_s = self._server.now_s
        self._server.budget.release(self._unsent_bytes)
        self._unsent_bytes = 0
        self.advance_soon()

    # -- called by the server

    def budget_allows(self) -> None:
        self._waits_for_budget = False
        self.last_active_s = self._server.now_s
        self._steer_reading()

    def stop_reading(self) -> None:
        """Read no more requests during a stop of the server, but answer all received requests."""
        self._steer_reading()

    def is_late(self, now_s: float, receive_timeout_s: float) -> bool:
        """Return whether the client takes too long to complete a request that it has begun to send.

        A connection that is read in spite of the memory limit is already late when it sends nothing
        for PASSING_SILENCE_MAX_S, or sends slowly, because other connections wait for their turn.
        """
        if self.partial_since_s is None:
            return False
        if self._is_reading_paused and not (self.can_finish and not self.has_sent_more):
            return False  # the broker keeps the client waiting
        if self._server.budget.is_passing(self):
            if now_s - self.last_active_s > PASSING_SILENCE_MAX_S:
                return True
            passed_bytes = self._unframed_bytes - self._unframed_before
            in_time_s = PASSING_SILENCE_MAX_S + passed_bytes / BYTES_S_MIN
            receive_timeout_s = min(receive_timeout_s, in_time_s)
        return now_s - self.partial_since_s > receive_timeout_s

    def shorten_stall(self) -> None:
        """Let the stall begin later, by the time allowed for the bytes taken since the last call.

        The kernel accepts a megabyte from the transport at once, which the client takes in parts.
        """
        assert self._transport is not None and self.stalled_since_s is not None
        before, self._untaken_bytes = self._untaken_bytes, self._transport.get_write_buffer_size()
        if (peer_socket := self._transport.get_extra_info("socket")) is not None:
            self._untaken_bytes += unacknowledged_bytes(peer_socket)
        allowed_s = max(0, before - self._untaken_bytes) / BYTES_S_MIN
        self.stalled_since_s = min(self._server.now_s, self.stalled_since_s + allowed_s)

    def close(self, reason: str) -> None:
        """Close the connection once all written bytes are sent."""
        if self.closing_since_s is None:
            self.closing_since_s = self._server.now_s
            self._frames.clear()
            self._server.note_closed(self, reason)
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately, and drop unsent bytes."""
        self.closing_since_s = self.closing_since_s or self._server.now_s
        if self._transport is not None:
            self._transport.abort()

    # -- requests, in order

    def _advance(self) -> None:
        server, dispatcher = self._server, self.dispatcher
        frames, in_flight, started = self._frames, self._in_flight, 0
        stretch = REQUESTS_AT_A_STRETCH if self.silent_since_s is None else REQUESTS_AT_FIRST
        try:
            while frames and not self._is_writing_paused and self.closing_since_s is None:
                assert self.context is not None
                if self.context.is_muted or (in_flight and not self._is_pipelining):
                    # Requests wait for earlier answers, and so does a close of the connection.
                    return
                frame = frames[0]
                api = dispatcher.find(frame)
                if in_flight and not self._may_overtake_answers(api):
                    return
                if started == stretch or server.share.is_spent():
                    self.advance_soon()
                    return
                started, began_s = started + 1, server.share.began_s
                frames.popleft()
                answer = dispatcher.dispatch(self.context, api, frame)
                if self.silent_since_s is not None and self.context.is_let_in:
                    self.silent_since_s = None
                    server.heard_first(self)
                    self._receiver.max_bytes = server.config.socket_request_max_bytes
                size_bytes = len(frame) + SIZE_PREFIX_BYTES
                del frame
                if in_flight or (isinstance(answer, PendingAnswer) and not answer.is_done):
                    self._is_pipelining = api is not None and api.is_pipelined
                    key = NO_API if api is None else api.key
                    in_flight.append((answer, size_bytes, key, began_s))
                    if isinstance(answer, PendingAnswer):
                        answer.notify(self._answers_changed)
                else:
                    self._send_now(answer)
                    self._release(size_bytes)
                    if api is not None:
                        server.times.note(api.key, server.share.clock() - began_s)
                server.share.ended()
        except CloseConnection as reason:
            server.share.ended()
            if isinstance(reason, UnservedRequest):
                assert self.context is not None
                software = self.context.client_software
                server.unserved.note(reason, software, self.peer_host, frames[0])
            self._close_in_turn(str(reason))

    def _close_in_turn(self, reason: str) -> None:
        """Start no more requests, and close the connection after all earlier answers."""
        if not self._in_flight:
            self.close(reason)
            return
        last = PendingAnswer()
        last.abort(reason)
        self._is_pipelining = False
        self._in_flight.append((last, 0, NO_API, 0.0))

    def _may_overtake_answers(self, api: Api | None) -> bool:
        return api is not None and api.is_pipelined and len(self._in_flight) < PIPELINED_MAX

    def _send_now(self, answer: Answer) -> None:
        if isinstance(answer, PendingAnswer):
            if answer.close_reason is not None:
                self._write(answer.buffers or [])
                raise CloseConnection(answer.close_reason)
            answer = answer.buffers
        if answer:
            self._write(answer)

    def _answers_changed(self) -> None:
        """Send all complete answers up to the first incomplete one."""
        if self.closing_since_s is not None:
            return
        ready: list[Buffer] = []
        released, close_reason = 0, None
        in_flight, now_s = self._in_flight, self._server.share.clock()
        while in_flight:
            answer, size_bytes, api_key, began_s = in_flight[0]
            if isinstance(answer, PendingAnswer):
                if not answer.is_done:
                    break
                if answer.close_reason is not None:
                    close_reason = answer.close_reason
                    ready += answer.buffers or ()
                    break
                answer = answer.buffers
            in_flight.popleft()
            released += size_bytes
            if api_key != NO_API:
                self._server.times.note(api_key, now_s - began_s)
            if answer:
                ready += answer
        if ready:
            self._write(ready)
        if released:
            self._release(released)
            self.advance_soon()
        if close_reason is not None:
            self.close(close_reason)

    def _write(self, buffers: list[Buffer]) -> None:
        transport = self._transport
        # The transport is closing after a reset, before it calls `connection_lost`.
        if transport is not None and not transport.is_closing():
            if self._is_writing_paused:  # so `pause_writing` does not count this answer
                answer_bytes = sum(map(len, buffers))
                self._unsent_bytes += answer_bytes
                self._server.budget.hold(answer_bytes)
            self._writing = buffers
            transport.writelines(buffers)
            self._writing = []

    def advance_soon(self) -> None:
        """Start waiting requests in a later turn of the event loop.

        They do not start now, because the caller may be the handler of another request.
        """
        is_due = self._frames or self._is_reading_paused or self._has_ended
        if is_due and not self._is_advance_due:
            self._is_advance_due = True
            is_early = self.silent_since_s is not None
            self._server.share.put(self._advance_now, is_early=is_early)

    def _advance_now(self) -> None:
        self._is_advance_due = False
        if self.closing_since_s is None:
            self._advance()
            self._steer_reading()

    def _release(self, size_bytes: int) -> None:
        """Return the memory of answered requests to the memory budget of all connections."""
        self.last_active_s = self._server.now_s
        self.held_bytes -= size_bytes
        self._server.budget.release(size_bytes, self)

    def _steer_reading(self) -> None:
        """Pause or resume reading as the state of the connection requires."""
        transport = self._transport
        if transport is None or self.closing_since_s is not None or transport.is_closing():
            return
        if self._has_ended:
            self._close_after_end()
            return
        if self._malformed and not self.has_requests:
            self.close(self._malformed)
            return
        budget = self._server.budget
        if budget.held_bytes > budget.limit_bytes:
            waited, waits = self._waits_for_budget, budget.must_wait(self)
            self._waits_for_budget = waits
            if waits > waited or budget.is_passing(self):  # if its client has sent nothing more
                self._server.share.put(budget.pass_next)
        pause = (
            bool(self._frames or self._malformed)
            or (self.silent_since_s is not None and self._is_muted)
            or self._is_writing_paused
            or self._waits_for_budget
            or self._server.is_stopping
        )
        if pause != self._is_reading_paused:
            self._is_reading_paused = pause
            if pause:
                transport.pause_reading()
            else:
                if self.partial_since_s is not None:
                    self.partial_since_s = self._server.now_s
                self._unframed_before = self._unframed_bytes
                transport.resume_reading()
