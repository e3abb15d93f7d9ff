"""All addresses of one site, behind its guard."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ..pages.frame import message
from .api import JsonTwins
from .guard import Guard
from .site import Site
from .views import Views
from .writes import Writes

STATIC = Path(__file__).resolve().parents[1] / "static"


def application(site: Site) -> ASGIApp:
    """Return the ASGI application of a site."""
    routes = [
        *JsonTwins(site).routes(),
        *Writes(site).routes(),
        *Views(site).routes(),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    app = Starlette(routes=routes, exception_handlers={404: _missing, 405: _missing})
    return Guard(app, site.access)


async def _missing(request: Request, problem: Exception) -> Response:
    return HTMLResponse(message("Not found", "There is no such view."), 404)
