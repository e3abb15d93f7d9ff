"""All routes of a site, behind its guard."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ...proof.pages.document import STYLE_FILE
from ..pages.frame import message
from .api import JsonTwins
from .guard import Guard
from .site import Site
from .views import Views
from .writes import Writes

STATIC = Path(__file__).resolve().parents[1] / "static"


def application(site: Site) -> ASGIApp:
    """Return the ASGI application of a site, in which a Guard checks the requests of all routes."""
    routes = [
        *JsonTwins(site).routes(),
        *Writes(site).routes(),
        *Views(site).routes(),
        *static_files(),
    ]
    app = Starlette(routes=routes, exception_handlers={404: missing, 405: missing})
    return Guard(app, site.access)


def static_files() -> list[BaseRoute]:
    """Return the routes of scripts and styles."""

    async def style(request: Request) -> Response:
        return FileResponse(STYLE_FILE)

    return [
        Route("/static/style.css", style),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]


async def missing(request: Request, problem: Exception) -> Response:
    """Answer a request for an unknown address, or with a wrong method, with an error page."""
    return HTMLResponse(message("Not found", "There is no such view."), 404)
