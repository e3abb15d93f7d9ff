"""The changes that the page offers, which are aborts of transactions, and faults.

For an abort (--allow-writes) the user types the id again. An unsafe abort is refused with the
message of `oncelog txn abort`. The answer to a fault is a sentence that proves its effect.
"""

from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ...deploy.cluster.failure import Failure
from ...proof.pages.markup import element
from ...wire.errors import KafkaError
from ..addresses import partition_address, transaction_address
from ..pages.frame import message
from .site import Site

BODY_BYTES_MAX, FIELDS_MAX = 16 * 1024, 8


class Writes:
    """The HTTP handlers that abort a transaction, inject a fault or start a load."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return the routes for aborts and faults, which refuse what this page does not allow."""
        return [
            Route("/abort", self.abort, methods=["POST"]),
            Route("/fault", self.fault, methods=["POST"]),
        ]

    async def abort(self, request: Request) -> Response:
        abort = self._site.abort
        if abort is None:
            return _page("Not allowed", "Start oncelog ui with --allow-writes for that.", "/", 403)
        fields = await _fields(request)
        if fields is None:
            return _page("Not understood", "The form is too long.", "/", 413)
        name, index = fields.get("transactional_id", ""), fields.get("partition", "")
        back, subject = transaction_address(name) if name else "/", name
        if not name:
            subject = fields.get("producer_id", "")
            if not _is_number(subject, 18) or not _is_number(index, 9) or not fields.get("topic"):
                return _page("Not understood", "The form names no transaction.", "/", 400)
            back = partition_address((fields["topic"], int(index)))
        if fields.get("confirm", "").strip() != subject:
            words = f"Nothing was done: {subject} was not typed to confirm it."
            return _page("Not confirmed", words, back, 400)
        try:
            sentence = await abort(fields)
        except (Failure, KafkaError) as problem:
            return _page("Not aborted", str(problem), back, 409)
        return _page("Done", sentence, back, 200)

    async def fault(self, request: Request) -> Response:
        fault = self._site.fault
        if fault is None:
            words = "Faults are done to a cluster on this machine, and not with --read-only."
            return _page("Not allowed", words, "/", 403)
        fields = await _fields(request)
        if fields is None:
            return _page("Not understood", "The form is too long.", "/faults", 413)
        try:
            sentence = await fault(fields)
        except (Failure, KafkaError) as problem:
            return _page("Not done", str(problem), "/faults", 409)
        return _page("Done", sentence, "/faults", 200)


async def _fields(request: Request) -> dict[str, str] | None:
    """Return the fields of a submitted form, {} for an invalid form, or None for a long one."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            return None
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        return {}
    return dict(pairs)


def _is_number(text: str, digits_max: int) -> bool:
    return text.isdecimal() and len(text) <= digits_max


def _page(title: str, sentence: str, back: str, status: int) -> Response:
    return HTMLResponse(message(title, sentence, element("a", "Back", href=back)), status)
