"""The HTML views. Each has an address, and a handler that renders the current facts."""

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ...proof.pages.markup import element
from ...wire.errors import KafkaError
from ...wire.identifiers import TopicPartition
from .. import documents
from ..facts import ClusterFacts
from ..pages.faults import faults_page
from ..pages.frame import page
from ..pages.groups import group_page, groups_page
from ..pages.now import now_page
from ..pages.records import records_page
from ..pages.timeline import timeline_page
from ..pages.topics import partition_page, topic_page, topics_page
from ..pages.transactions import transaction_page, transactions_page
from ..window import TimeWindow
from .questions import events_about, records_asked
from .site import FIRST_VIEW_S, PARTS, Site, now_ms

EVERYTHING = (*PARTS, "replicas", "nodes")
OF_TOPICS = ("cluster", "offsets", "log starts", "transactions")
NAME = "name"
EVENTS_LOOKED_AT = 200  # limit for the rows of the first view, since many may become one row


class Views:
    """The HTTP handlers that return the views as HTML."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes of the views."""
        return [
            Route("/", self.now),
            Route("/topics", self.topics),
            Route("/topics/{topic}", self.topic),
            Route("/topics/{topic}/{partition:int}", self.partition),
            Route("/topics/{topic}/{partition:int}/records", self.records),
            Route("/transactions", self.transactions),
            Route("/transactions/{name:path}", self.transaction),
            Route("/groups", self.groups),
            Route("/groups/{name:path}", self.group),
            Route("/timeline", self.timeline),
            Route("/faults", self.faults),
        ]

    async def now(self, request: Request) -> Response:
        facts = await self._site.first_facts(FIRST_VIEW_S)
        cluster = documents.cluster(facts, now_ms())
        transactions = documents.transactions(facts, now_ms())
        events = documents.events(facts, now_ms(), limit=EVENTS_LOOKED_AT)
        frame = self._site.frame("/", cluster, EVERYTHING)
        return HTMLResponse(now_page(frame, cluster, transactions, events, facts.samples))

    async def topics(self, request: Request) -> Response:
        facts = await self._site.first_facts(FIRST_VIEW_S)
        found = documents.topics(facts, now_ms())
        frame = self._site.frame("/topics", found, OF_TOPICS)
        return HTMLResponse(topics_page(frame, found))

    async def topic(self, request: Request) -> Response:
        facts = await self._site.first_facts()
        name = request.path_params["topic"]
        found = documents.partitions(facts, now_ms(), name)
        if not found["partitions"]:
            return self._missing(request, f"There is no topic {name}.")
        frame = self._site.frame(request.url.path, found, OF_TOPICS)
        return HTMLResponse(topic_page(frame, name, found))

    async def partition(self, request: Request) -> Response:
        facts = await self._site.first_facts()
        key = _key(request)
        if key not in facts.partitions:
            return self._missing(request, f"There is no partition {key[0]}/{key[1]}.")
        min_insync = await self._site.observer.min_insync(key[0])
        facts = self._site.facts
        if key not in facts.partitions:  # deleted meanwhile
            return self._missing(request, f"There is no partition {key[0]}/{key[1]}.")
        found = documents.partition(facts, key, now_ms(), min_insync)
        frame = self._site.frame(request.url.path, found, EVERYTHING)
        return HTMLResponse(partition_page(frame, found))

    async def records(self, request: Request) -> Response:
        facts = await self._site.first_facts()
        key = _key(request)
        if key not in facts.partitions:
            return self._missing(request, f"There is no partition {key[0]}/{key[1]}.")
        try:
            found = await records_asked(self._site.observer.admin, key, request.query_params)
        except ValueError as problem:
            return self._missing(request, f"{problem}.", status=400)
        except KafkaError as problem:
            return self._missing(request, str(problem), status=503)
        owners = {t.producer_id: t.transactional_id for t in self._site.facts.transactions.values()}
        frame = self._site.frame(request.url.path, {"as_of_ms": now_ms()}, (), is_live=False)
        return HTMLResponse(records_page(frame, found, owners))

    async def transactions(self, request: Request) -> Response:
        if NAME in request.query_params:
            return await self._transaction(request, request.query_params[NAME])
        facts = await self._site.first_facts(FIRST_VIEW_S)
        found = documents.transactions(facts, now_ms())
        frame = self._site.frame("/transactions", found, ("transactions",))
        return HTMLResponse(transactions_page(frame, found))

    async def transaction(self, request: Request) -> Response:
        return await self._transaction(request, request.path_params[NAME])

    async def _transaction(self, request: Request, name: str) -> Response:
        facts = await self._site.first_facts()
        if name not in facts.transactions:
            return self._missing(request, f"No coordinator knows a transactional id {name}.")
        found = documents.transaction(facts, name, now_ms())
        events = events_about(facts, name, ("fence", "abort"))
        frame = self._site.frame(request.url.path, found, ("transactions", "offsets"))
        return HTMLResponse(transaction_page(frame, found["transactions"][0], events))

    async def groups(self, request: Request) -> Response:
        if NAME in request.query_params:
            return await self._group(request, request.query_params[NAME])
        facts = await self._site.first_facts(FIRST_VIEW_S)
        found = documents.groups(facts, now_ms())
        frame = self._site.frame("/groups", found, ("groups", "offsets"))
        return HTMLResponse(groups_page(frame, found))

    async def group(self, request: Request) -> Response:
        return await self._group(request, request.path_params[NAME])

    async def _group(self, request: Request, name: str) -> Response:
        facts = await self._site.first_facts()
        if name not in facts.groups:
            return self._missing(request, f"There is no group {name}.")
        found = documents.groups(facts, now_ms(), only=name)
        events = events_about(facts, name, ("group",))
        frame = self._site.frame(request.url.path, found, ("groups", "offsets", "transactions"))
        return HTMLResponse(group_page(frame, found["groups"][0], events))

    async def timeline(self, request: Request) -> Response:
        facts = await self._site.first_facts(FIRST_VIEW_S)
        try:
            window = TimeWindow.asked(request.query_params, now_ms())
        except ValueError as problem:
            return self._missing(request, f"{problem}.", status=400)
        found = documents.events(facts, now_ms(), window=window)
        frame = self._site.frame("/timeline", found, EVERYTHING)
        started_ms = self._site.started_ms
        return HTMLResponse(timeline_page(frame, found, started_ms, facts.samples, window))

    async def faults(self, request: Request) -> Response:
        facts = await self._site.first_facts(FIRST_VIEW_S)
        if self._site.fault is None:
            words = "Faults are done to a cluster on this machine, and not with --read-only."
            return self._missing(request, words, status=403)
        cluster = documents.cluster(facts, now_ms())
        events = documents.events(facts, now_ms(), limit=EVENTS_LOOKED_AT)
        frame = self._site.frame("/faults", cluster, EVERYTHING)
        return HTMLResponse(faults_page(frame, cluster, events, self._site.load_words()))

    def _missing(self, request: Request, sentence: str, status: int = 404) -> Response:
        facts: ClusterFacts = self._site.facts
        document: dict[str, Any] = {"as_of_ms": max(facts.as_of_ms.values(), default=0)}
        frame = self._site.frame(request.url.path, document, EVERYTHING)
        title = "Not found" if status == 404 else "Not possible"
        words = element("p", sentence, id="missing", data_live=True)
        return HTMLResponse(page(frame, title, words), status)


def _key(request: Request) -> TopicPartition:
    return request.path_params["topic"], request.path_params["partition"]
