"""One computation for all requests with the same key.

A request joins the newest computation of its key if that has not begun yet, or if nothing has
changed since it began: the computation never reads a state older than the request. Else there is
one more computation, which begins when that one has ended. So a key has at most two, one that runs
and one that waits, however many requests come and however often the state changes. A computation is
dropped if all its clients have disconnected before it begins.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from ...listener.large_requests import ClientGone, RequestConnection

Answer = TypeVar("Answer")


class Computation(Generic[Answer]):
    """A computation that answers all requests that joined it.

    The function that builds the answer calls `begin` before it reads any state.
    """

    __slots__ = ("_moment", "askers", "began_at", "task")

    def __init__(self, moment: Callable[[], Hashable]) -> None:
        self._moment = moment
        self.askers: list[RequestConnection] = []
        self.began_at: Hashable | None = None
        self.task: asyncio.Task[Answer] | None = None

    def begin(self) -> None:
        """Note that the answer depends on the state from now on.

        Raises ClientGone if the clients of all requests are gone.
        """
        if all(asker.is_closed for asker in self.askers):
            raise ClientGone
        self.began_at = self._moment()

    @property
    def may_be_joined(self) -> bool:
        """Return whether it may answer a request that comes now."""
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
        """Return the answer to a request that comes now; a lost client does not cancel it."""
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
            del computation, before  # an exception would hold the frame that holds its task
