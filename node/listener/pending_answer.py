"""A pending answer, which a handler completes later and a connection sends."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ...runtime.turn_share import TurnShare
from ...wire.errors import KafkaError, UnknownServerError
from ...wire.framing import Buffer, frame_response

logger = logging.getLogger("oncelog.requests")


@dataclass(slots=True, eq=False, repr=False)
class PendingAnswer:
    """An answer that is not complete yet.

    The handler keeps it and calls `complete` or `abort` once, from the event loop, before or after
    the handler returns. If the connection is lost before that, `on_abandon` is called, maybe some
    turns of the event loop later. The answer is then done, and completing it sends nothing.
    `finish` is called with the body, and returns it with the throttle time.
    """

    on_abandon: Callable[[], None] | None = None
    is_done: bool = False
    is_abandoned: bool = False
    buffers: list[Buffer] | None = None  # with its header, once done; None when nothing is sent
    close_reason: str | None = None
    finish: Callable[[list[Buffer]], list[Buffer]] | None = None
    _response_header: bytes | None = None
    _on_done: Callable[[], None] | None = None

    def complete(self, body: list[Buffer] | None) -> None:
        """Complete the answer with its body, or with None for no answer."""
        if self.is_abandoned:
            if self.finish is not None:
                # The request is measured even if the client has disconnected.
                self.finish(body or [])
            return
        assert not self.is_done, "a request is answered once"
        self.is_done = True
        self.on_abandon = None
        if body is not None and self.finish is not None:
            body = self.finish(body)
        self.buffers = body
        if self._response_header is not None:
            self._frame()
        if self._on_done is not None:
            on_done, self._on_done = self._on_done, None
            on_done()

    def abort(self, reason: str, body: list[Buffer] | None = None) -> None:
        """Close the connection instead of answering, for example after a failed acks=0 produce.

        body: the body of an answer that is sent before the close, or None to send nothing.
        """
        self.close_reason = reason
        self.complete(body)

    def follow(self, other: "PendingAnswer") -> None:
        """Complete this answer with the body of another answer, as soon as that is complete.

        If this answer is abandoned, the other answer is abandoned, too. The other answer must not
        be registered with a connection.
        """
        if not other.is_done:  # its time counts even if the client is gone
            other.finish, self.finish = self.finish, None
        if self.is_abandoned:
            other.abandon()
            return
        self.on_abandon = other.abandon

        def complete() -> None:
            if other.close_reason is None:
                self.complete(other.buffers)
            else:
                self.abort(other.close_reason, other.buffers)

        if other.is_done:
            complete()
        else:
            other.notify(complete)

    def fail(
        self, error: Exception, refuse: Callable[[KafkaError], "list[Buffer] | PendingAnswer"]
    ) -> None:
        """Complete the answer with an error that occurs after the handler has returned.

        refuse: returns the body of an error answer. The connection is closed if `refuse` raises an
        exception or aborts this answer.
        """
        if not isinstance(error, KafkaError):
            logger.error("a waiting request failed: %r", error, exc_info=error)
            error = UnknownServerError()
        if self.is_done:
            return
        try:
            body = refuse(error)
        except Exception:
            logger.exception("a failed request gets no error answer, so its connection is closed")
            self.abort(f"a request failed: {error}")
            return
        if not isinstance(body, PendingAnswer):
            self.complete(body)

    def bind(self, response_header: bytes) -> None:
        """Set the encoded header of the answer. The dispatcher calls this method."""
        self._response_header = response_header
        if self.is_done:
            self._frame()

    def notify(self, on_done: Callable[[], None]) -> None:
        """Set the callback for the completed answer. The connection calls this method."""
        self._on_done = on_done

    def abandon(self, share: TurnShare | None = None) -> None:
        """Abandon the answer after a disconnect, and call `on_abandon`.

        The call is put off to a later turn of the event loop if this turn's time budget is spent.
        """
        self._on_done = None
        if self.is_done:
            return
        self.is_done = self.is_abandoned = True
        on_abandon, self.on_abandon = self.on_abandon, None
        if on_abandon is None:
            return
        if share is None:
            on_abandon()
        else:
            share.do(on_abandon)

    def _frame(self) -> None:
        if self.buffers is not None and self._response_header is not None:
            self.buffers = frame_response(self._response_header, self.buffers)
