"""`oncelog clock` advances the time of a cluster that was started with `up --clock controlled`."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ..deploy.cluster.lookup import open_cluster
from .common import DEFAULT_DATA, Data, Format, add_family, print_report

if TYPE_CHECKING:
    from ..deploy.cluster.clock import ClockStatus


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    about = (
        "Advance the clock of a controlled cluster, which triggers timeouts, expiry and retention."
    )
    add_family(app, "clock", about, advance, show)


def advance(
    by: Annotated[str, Parameter(help="The time to advance, e.g. 15m, 1h30m or 8d.")],
    /,
    *,
    data: Data = DEFAULT_DATA,
    format: Format = "table",
) -> None:
    """Advance the cluster's clock, and wait up to 3 s until all running nodes have checked their
    timeouts.
    """
    _print(open_cluster(data).clock.advance(by), format)


def show(*, data: Data = DEFAULT_DATA, format: Format = "table") -> None:
    """Print the time on the cluster's clock, and by how much it was advanced."""
    _print(open_cluster(data).clock.show(), format)


def _print(status: "ClockStatus", format: str) -> None:
    shown = datetime.fromtimestamp(status.now_ms / 1000, UTC).isoformat(" ", "milliseconds")
    ahead = timedelta(milliseconds=status.advanced_ms)
    lines = [f"the cluster's clock shows {shown}: it was advanced by {ahead} in all"]
    lines += [f"node {i} has not yet checked for expired items" for i in status.behind]
    fields = {
        "now": shown,
        "now_ms": status.now_ms,
        "advanced_ms": status.advanced_ms,
        "behind": status.behind,
    }
    print_report(fields, lines, format)
