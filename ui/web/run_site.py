"""The page of one run, with its report as a view and as JSON. A Guard checks all requests."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ...proof.pages.run_page import run_view
from ...proof.pages.run_report import RunReport
from .access import PageAccess
from .app import missing, static_files
from .guard import Guard


def run_application(report: RunReport, folder: str, access: PageAccess) -> ASGIApp:
    """Return the ASGI application for one run's page, on which nothing can be changed."""
    view, data = run_view(report, folder), report.as_json()

    async def page(request: Request) -> Response:
        return HTMLResponse(view)

    async def twin(request: Request) -> Response:
        return Response(data, media_type="application/json")

    routes = [Route("/", page), Route("/api/run", twin), *static_files()]
    app = Starlette(routes=routes, exception_handlers={404: missing, 405: missing})
    return Guard(app, access)
