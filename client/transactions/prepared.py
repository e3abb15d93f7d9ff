"""Prepared transactions (KIP-939), which one process writes and another process may end.

A token names a prepared transaction. All its records are acknowledged, and it waits for its end
without a time limit (except with `may_time_out`). Any process with the token can end the
transaction, also repeatedly:

    token = str(await producer.prepare())
    ...
    await complete("127.0.0.1:9092", token, commit=True)

A repeated end of the same kind is harmless. If another process has decided differently, the broker
answers INVALID_TXN_STATE, or PRODUCER_FENCED after another transaction of the same id.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ..cluster_view import ClusterView
from ..retries import now_ms
from ..view_source import Source, view_of
from .requests import TransactionRequests

FORM = "oncelog-prepared-1"
TOKEN = re.compile(rf"{FORM}:([^:]*):(-?[0-9]+):(-?[0-9]+):([12])(e?)")


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """The token of a prepared transaction. Its text is `str()`.

    `is_empty` means that the transaction has no records, so that it needs no end.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_v2: bool
    is_empty: bool = False

    def __str__(self) -> str:
        kind = ("2" if self.is_v2 else "1") + ("e" if self.is_empty else "")
        name = quote(self.transactional_id, safe="")
        return f"{FORM}:{name}:{self.producer_id}:{self.producer_epoch}:{kind}"

    @classmethod
    def parse(cls, text: str) -> "PreparedTransaction":
        """Return the token of a text, or raise ValueError."""
        found = TOKEN.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no token of a prepared transaction")
        name, producer_id, epoch, version, empty = found.groups()
        return cls(unquote(name), int(producer_id), int(epoch), version == "2", bool(empty))


async def complete(
    cluster: Source,
    token: PreparedTransaction | str,
    commit: bool,
    *,
    timeout_ms: int = 60_000,
    request_timeout_ms: int = 10_000,
) -> None:
    """Commit or abort a prepared transaction. Return when the decision is durable.

    cluster: a view, a bootstrap list, or a configuration, as for `Admin`. Raises InvalidTxnState,
    ProducerFenced or InvalidProducerIdMapping if the transaction was ended in the other way or
    expired. Raises RequestTimedOut if no coordinator decided in time.
    """
    known = PreparedTransaction.parse(token) if isinstance(token, str) else token
    if known.is_empty:
        return
    view = cluster if isinstance(cluster, ClusterView) else view_of(cluster)
    try:
        requests = TransactionRequests(
            view, known.transactional_id, timeout_ms=request_timeout_ms, backoff=(20, 500)
        )
        producer = (known.producer_id, known.producer_epoch)
        deadline_ms = now_ms() + timeout_ms
        await requests.end(producer, deadline_ms, is_commit=commit, is_v2=known.is_v2)
    finally:
        if view is not cluster:
            await view.close()
