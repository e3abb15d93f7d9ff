"""The views as JSON, and the stream that reports their changes."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ...wire.errors import KafkaError
from .. import documents
from ..facts import ClusterFacts
from ..paging import Document, RowRange, shortened
from ..window import TimeWindow
from .questions import partition_asked, records_asked
from .site import Site, now_ms

STREAMS_MAX = 32
AT_LEAST_S, AT_MOST_S = 0.5, 10.0  # between two words of a stream


class JsonTwins:
    """The HTTP handlers that return the views' documents as JSON."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes of `/api/...` and of the stream of changes."""
        return [
            Route("/api/cluster", self.cluster),
            Route("/api/topics", self._rows(documents.topics)),
            Route("/api/partitions", self.partitions),
            Route("/api/transactions", self._rows(documents.transactions)),
            Route("/api/groups", self._rows(documents.groups)),
            Route("/api/events", self.events),
            Route("/api/records", self.records),
            Route("/changes", self.changes),
        ]

    def _rows(
        self, document: Callable[[ClusterFacts, int, RowRange], Document]
    ) -> Callable[..., Any]:
        async def handler(request: Request) -> Response:
            facts = await self._site.first_facts()
            try:
                rows = RowRange.asked(request.query_params)
            except ValueError as problem:
                return JSONResponse({"error": str(problem)}, 400)
            return JSONResponse(document(facts, now_ms(), rows))

        return handler

    async def cluster(self, request: Request) -> Response:
        """Answer with the nodes, counts and problems of the cluster."""
        facts = await self._site.first_facts()
        return JSONResponse(shortened(documents.cluster(facts, now_ms())))

    async def events(self, request: Request) -> Response:
        """Answer with the newest events, or with those of a time range by ?at= and ?minutes=."""
        facts = await self._site.first_facts()
        try:
            window = TimeWindow.asked(request.query_params, now_ms())
        except ValueError as problem:
            return JSONResponse({"error": str(problem)}, 400)
        return JSONResponse(documents.events(facts, now_ms(), window=window))

    async def partitions(self, request: Request) -> Response:
        """Answer with all partitions, with those of ?topic=, or with one of them by &partition=."""
        facts = await self._site.first_facts()
        topic = request.query_params.get("topic")
        try:
            number = partition_asked(request.query_params)
            rows = RowRange.asked(request.query_params)
        except ValueError as problem:
            return JSONResponse({"error": str(problem)}, 400)
        if number is None:
            return JSONResponse(documents.partitions(facts, now_ms(), topic, rows))
        key = (topic or "", number)
        min_insync = await self._site.observer.min_insync(key[0]) if key in facts.partitions else 1
        facts = self._site.facts
        if key not in facts.partitions:
            return JSONResponse({"error": f"there is no partition {key[0]}/{key[1]}"}, 404)
        found = documents.partition(facts, key, now_ms(), min_insync)
        found["partitions"] = [shortened(row) for row in found["partitions"]]
        return JSONResponse(found)

    async def records(self, request: Request) -> Response:
        """Answer with records of ?topic=&partition=, from &offset= or &time= on."""
        try:
            number = partition_asked(request.query_params)
            key = (request.query_params.get("topic", ""), number or 0)
            if key not in (await self._site.first_facts()).partitions:
                return JSONResponse({"error": f"there is no partition {key[0]}/{key[1]}"}, 404)
            found = await records_asked(self._site.observer.admin, key, request.query_params)
        except ValueError as problem:
            return JSONResponse({"error": str(problem)}, 400)
        except KafkaError as problem:
            return JSONResponse({"error": str(problem)}, 503)
        return JSONResponse({"as_of_ms": now_ms(), **found})

    async def changes(self, request: Request) -> Response:
        """Stream a server-sent event when there are new facts, at most two per second.

        Without new facts, an event is sent every 10 seconds. With too many streams, answer 503.
        """
        if self._site.streams >= STREAMS_MAX:
            return JSONResponse({"error": f"{STREAMS_MAX} pages are open already"}, 503)
        return StreamingResponse(self._stream(request), media_type="text/event-stream")

    async def _stream(self, request: Request) -> AsyncIterator[str]:
        site = self._site
        site.streams += 1
        try:
            while not site.closing.is_set():
                as_of_ms = max(site.facts.as_of_ms.values(), default=0)
                yield f"data: {json.dumps({'as_of_ms': as_of_ms})}\n\n"
                await site.pause(AT_LEAST_S)
                await site.observer.changed(AT_MOST_S)
                if await request.is_disconnected():
                    break
        finally:
            site.streams -= 1
