"""An ASGI wrapper that refuses requests by the rules of `access`, and adds security headers."""

from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..pages.frame import message, welcome
from .access import REFUSED_TOKEN, SAFE, PageAccess

OPEN_TO_ALL = ("/static/",)  # nothing of a cluster, and the page of a refusal needs it
BROWSERS_OBEY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer the Origin of a POST would be null
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """An ASGI application that checks each request before it calls another application."""

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(sent: Message) -> None:
            if sent["type"] == "http.response.start":
                headers = MutableHeaders(scope=sent)
                for name, value in BROWSERS_OBEY.items():
                    headers[name] = value
            await send(sent)

        answer = self._answer(scope)
        if answer is not None:
            await answer(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the response to a request that must not reach the views, or None.

        A request with the token gets the page that sets the cookie, and any other is refused.
        """
        headers, path = Headers(scope=scope), scope["path"]
        refused = self._access.refused(scope["method"], headers)
        if refused is not None:
            return _refusal(path, refused)
        if path.startswith(OPEN_TO_ALL):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given and scope["method"] in SAFE:
            if not self._access.is_token(given[0]):
                return _refusal(path, REFUSED_TOKEN)
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            # Two slashes would begin the name of another host. Browsers treat \\ as a slash.
            address = "/" + scope["raw_path"].decode("latin-1").lstrip("/\\")
            page = welcome(f"{address}?{rest}" if rest else address)
            return HTMLResponse(page, headers={"Set-Cookie": self._access.cookie_header()})
        if not self._access.knows(headers):
            return _refusal(path, REFUSED_TOKEN)
        return None


def _refusal(path: str, sentence: str) -> Response:
    if path.startswith("/api/"):
        return JSONResponse({"error": sentence}, 403)
    return HTMLResponse(message("Not for you", sentence), 403)
