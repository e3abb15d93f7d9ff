"""One computation for all that ask the same.

A question joins the newest computation of its key if that has not begun yet, or if nothing has
changed since it began: what it reads is at no time older than the question. Else there is one more
computation, which begins when that one has ended. So there are at most two of a key, one that runs
and one that waits, however many ask and however often the state changes. One whose askers have all
gone before it begins is given up.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from ...listener.large_requests import ClientGone, RequestConnection

Answer = TypeVar("Answer")


class Computation(Generic[Answer]):
    """What answers all questions that joined it. Whoever makes the answer calls `begin` before the
    first look at anything."""

    __slots__ = ("_moment", "askers", "began_at", "task")

    def __init__(self, moment: Callable[[], Hashable]) -> None:
        self._moment = moment
        self.askers: list[RequestConnection] = []
        self.began_at: Hashable | None = None
        self.task: asyncio.Task[Answer] | None = None

    def begin(self) -> None:
        """Say that from now on the answer depends on the state of its moment.

        Raises ClientGone where the clients of all questions have gone.
        """
        if all(asker.is_closed for asker in self.askers):
            raise ClientGone
        self.began_at = self._moment()

    @property
    def may_be_joined(self) -> bool:
        """Return whether a question of now is answered by it."""
        return self.began_at is None or self.began_at == self._moment()


Make = Callable[[Computation[Answer]], Coroutine[Any, Any, Answer]]


class SharedAnswers(Generic[Answer]):
    """The computations that run or wait, by the key of the question.

    `moment` gives a value that is another one as soon as an answer may be another one.
    """

    def __init__(self, moment: Callable[[], Hashable]) -> None:
        self._moment = moment
        self._newest: dict[Hashable, Computation[Answer]] = {}

    async def get(self, key: Hashable, asker: RequestConnection, make: Make[Answer]) -> Answer:
        """The answer to a question that is asked now. A client that goes takes nothing along."""
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
