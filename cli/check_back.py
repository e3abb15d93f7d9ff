"""`oncelog txn check-back` ends open transactions of dual writes as their databases decided."""

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.terminal import say, tell
from .common import QUERY, Query

if TYPE_CHECKING:
    from ..client.dual_write.check_back_service import Checked


def check_back(
    *,
    resolver: Annotated[
        str,
        Parameter(
            help="The database that has the decisions, as postgresql://... or sqlite:///FILE, or "
            "an endpoint that knows them, as http(s)://..."
        ),
    ],
    older_than: Annotated[
        float, Parameter(help="Skip transactions that are younger than this, in seconds.")
    ] = 30.0,
    every: Annotated[
        float, Parameter(help="The time between two searches for open transactions, in seconds.")
    ] = 1.0,
    once: Annotated[
        bool, Parameter(help="Search once, and end. The exit code is 1 if an outcome is unknown.")
    ] = False,
    writer: Annotated[str | None, Parameter(help="End only transactions of this writer.")] = None,
    query: Query = QUERY,
) -> int:
    """End the abandoned transactions of dual writes, as a resolver decides.

    If the resolver is a database, the command reads its decision table. If there is no row for a
    transaction, it inserts the row `aborted` first. An endpoint gets GET URL?transactional_id=...
    Its answer is {"outcome": OUTCOME}, where OUTCOME is "commit", "abort" or "unknown". An abort
    must be final. The command tests the resolver at the start, and runs until it is stopped.
    Several such commands may run at the same time.
    """
    from ..wire.errors import KafkaError

    if older_than < 0 or every <= 0:
        raise Failure("--older-than must be 0 or more, --every more than 0", exit_code=2)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            return asyncio.run(_run(query, resolver, writer, older_than, every, is_once=once))
    except KafkaError as problem:
        raise Failure(str(problem), exit_code=2) from None
    return 0


async def _run(
    query: Query,
    url: str,
    writer: str | None,
    older_than_s: float,
    every_s: float,
    *,
    is_once: bool,
) -> int:
    from ..client.admin import Admin
    from ..client.dual_write.check_back_service import CheckBack
    from ..client.dual_write.resolvers import resolver_of
    from ..deploy.cluster.silence import tell_silence

    resolver = resolver_of(url)
    try:
        async with query.view() as view:
            if is_once:
                tell_silence(Admin(view))
            else:  # tries again for ever
                view.on_silence = say
            check_back = CheckBack(
                view, resolver, older_than_ms=round(older_than_s * 1000), writer=writer
            )
            if (doubt := await check_back.check()) and query.format != "json":
                say(doubt)
            if not is_once:
                say(
                    f"looks every {every_s:g} s for transactions of dual writes that are open for "
                    f"{older_than_s:g} s, and ends them"
                )
                await check_back.run(
                    every_ms=round(every_s * 1000), report=lambda each: _print(each, query.format)
                )
            found = await check_back.sweep()
    finally:
        await resolver.close()
    for each in found:
        _print(each, query.format)
    if not found and query.format != "json":
        say(f"no transaction of a dual write has been open for {older_than_s:g} s")
    return int(any(each.outcome is None for each in found))


def _print(each: "Checked", output: str) -> None:
    if output != "json":
        tell(each.in_words())
        return
    fields: dict[str, Any] = {
        "id": each.key.transactional_id,
        "producer": each.key.producer_id,
        "epoch": each.key.producer_epoch,
        "open_s": round(each.age_ms / 1000, 1),
        "outcome": each.outcome.value if each.outcome else "unknown",
        "reason": each.reason,
    }
    print(json.dumps(fields), flush=True)
