"""The computations of answers that equal requests share.

A request joins the newest computation for equal requests (the same key) if that computation has not
begun, or if the state has not changed since it began. No request gets an answer from a state older
than the request. A request that cannot join starts a further computation, which begins when the
newest one has ended. A key therefore has at most one running and one waiting computation, however
often requests arrive and the state changes. A computation is dropped if all its clients have
disconnected before it begins.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from ...listener.large_requests import ClientGone, RequestConnection

Answer = TypeVar("Answer")


class Computation(Generic[Answer]):
    """A computation that answers all requests that have joined it.

    The function that builds the answer calls `begin` before it reads any state.
    """

    __slots__ = ("_moment", "askers", "began_at", "task")

    def __init__(self, moment: Callable[[], Hashable]) -> None:
        self._moment = moment
        self.askers: list[RequestConnection] = []
        self.began_at: Hashable | None = None
        self.task: asyncio.Task[Answer] | None = None

    def begin(self) -> None:
        """Record the state version at which the computation begins to read the state.

        Raises ClientGone if the clients of all requests have disconnected.
        """
        if all(asker.is_closed for asker in self.askers):
            raise ClientGone
        self.began_at = self._moment()

    @property
    def may_be_joined(self) -> bool:
        """Return whether the computation may answer a request that arrives now."""
        return self.began_at is None or self.began_at == self._moment()


Make = Callable[[Computation[Answer]], Coroutine[Any, Any, Answer]]


class SharedAnswers(Generic[Answer]):
    """The computations that run or wait, by the key of the request.

    `moment` returns a value that changes whenever an answer may change.
    """

    def __init__(self, moment: Callable[[], Hashable]) -> None:
        self._moment = moment
        self._newest: dict[Hashable, Computation[Answer]] = {}

    async def get(self, key: Hashable, asker: RequestConnection, make: Make[Answer]) -> Answer:
        """Return the answer to a new request, from a computation that it joins or from a new one.

        make: computes the answer. A disconnected client (`asker`) does not cancel the answer for
        other clients.
        """
        newest = self._newest.get(key)
        if newest is None or not newest.may_be_joined:
            before = None if newest is None else newest.task
            newest = self._newest[key] = Computation(self._moment)
            newest.task = asyncio.get_running_loop().create_task(
                self._compute(key, newest, before, make)
            )
        newest.askers.append(asker)
        assert newest.task is not None
        return await asyncio.shield(newest.task)

    async def _compute(
        self,
        key: Hashable,
        computation: Computation[Answer],
        before: asyncio.Task[Answer] | None,
        make: Make[Answer],
    ) -> Answer:
        try:
            if before is not None:
                await asyncio.wait((before,))
            return await make(computation)
        finally:
            if self._newest.get(key) is computation:
                del self._newest[key]
            # An exception refers to this frame, which would refer to the task of the exception.
            del computation, before
