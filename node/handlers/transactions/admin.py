"""The APIs of transactions for administrators (KIP-664).

DescribeTransactions 0   answered by the coordinator of each transactional id
ListTransactions 0-2     the ids that this broker coordinates; v1 filters by age (KIP-994), v2 by a
                         regular expression over the whole id (KIP-1152)

Simplification: Kafka uses RE2, whose expressions need no backtracking. Python's expressions do, so
those that could take long are refused (INVALID_REGULAR_EXPRESSION): more than 256 characters, a
quantifier after a group, more than two of the quantifiers `*`, `+` and `{`, references, and each
group that begins with `(?` except `(?:`.
"""

import re
from typing import Any

from ....coordinator.transactions.answers import TransactionDescription
from ....coordinator.transactions.states import BY_NAME
from ....runtime.steps import StepCounter, Steps
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import InvalidRegularExpression, KafkaError
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...listener.dispatch import Api, RequestContext, control_api
from ...security.access import Access
from ...security.rights import OfAnswer, on_each_name, shows_each
from ..answers import code_only, entries_bytes, of_each

IDS_MAX = 10_000  # the limit of ids in DescribeTransactions
PATTERN_LENGTH_MAX = 256
MATCHED_LENGTH_MAX = 1_024  # a longer id matches no expression
QUANTIFIERS_MAX = 2
IDS_PER_STEP = 200
DESCRIBED_A_STEP = 20  # each id is looked up in its shard
_SLOW = re.compile(r"\)[*+?{]|\(\?(?!:)|\\[1-9]")
_LITERAL = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]")


def describe(
    context: RequestContext, header: RequestHeader, request: "requests.DescribeTransactionsRequest"
) -> "responses.DescribeTransactions.Response":
    """Return the state of the transaction of each requested transactional id.

    Ids after the first IDS_MAX are omitted.
    """
    transactions = context.broker.transactions
    ids = request.transactional_ids[:IDS_MAX]
    return {"transaction_states": Each(lambda each: _state(transactions.describe(each)), ids)}


def list_transactions(
    context: RequestContext, header: RequestHeader, request: "requests.ListTransactionsRequest"
) -> "Steps[responses.ListTransactions.Response]":
    """Return the transactional ids that this broker coordinates and that pass all filters."""
    broker = context.broker
    if error := broker.transactions.leaders.list_error:
        return {"error_code": error}
    producer_ids = frozenset(request.producer_id_filters)
    states = {name for name in request.state_filters if name in BY_NAME}
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in BY_NAME]
    duration_ms = getattr(request, "duration_filter", -1)
    text = getattr(request, "transactional_id_pattern", None)
    pattern = compile_pattern(text) if text else None
    clock = broker.clock
    now_ms = clock.wall_ms()
    found: list[responses.ListTransactions.TransactionState] = []
    for number, each in enumerate(broker.transactions.descriptions()):
        if number % IDS_PER_STEP == IDS_PER_STEP - 1:
            yield
        if (
            (producer_ids and each.producer_id not in producer_ids)
            or (request.state_filters and each.state not in states)
            or (
                duration_ms >= 0
                and now_ms + clock.advanced_since_ms(each.start_ms) - each.start_ms <= duration_ms
            )
            or (pattern is not None and not _matches(pattern, each.transactional_id))
        ):
            continue
        found.append(
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": each.state,
            }
        )
    return {"unknown_state_filters": unknown, "transaction_states": found}


def _described_bytes(
    context: RequestContext, request: "requests.DescribeTransactionsRequest"
) -> Steps[int]:
    count = context.broker.transactions.partition_count
    return entries_bytes(lambda each: 1 + count(each), request.transactional_ids[:IDS_MAX])


def _listed_bytes(
    context: RequestContext, request: "requests.ListTransactionsRequest"
) -> Steps[int]:
    leaders = list(context.broker.transactions.leaders)
    return entries_bytes(lambda leader: len(leader.shard.records), leaders)


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression.

    Raises InvalidRegularExpression if the expression is invalid, or if a match could take too long.
    """
    bare = _LITERAL.sub("x", text)
    if (
        len(text) > PATTERN_LENGTH_MAX
        or _SLOW.search(text)
        or len(re.findall(r"[*+{]", bare)) > QUANTIFIERS_MAX
    ):
        raise InvalidRegularExpression(f"{text[:PATTERN_LENGTH_MAX]!r} could take too long.")
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidRegularExpression(f"{text!r}: {error}") from error


def _matches(pattern: re.Pattern[str], transactional_id: str) -> bool:
    return (
        len(transactional_id) <= MATCHED_LENGTH_MAX
        and pattern.fullmatch(transactional_id) is not None
    )


def _state(
    description: TransactionDescription,
) -> "responses.DescribeTransactions.TransactionState":
    if description.error:
        return {
            "error_code": description.error,
            "transactional_id": description.transactional_id,
            "transaction_state": "",
            "transaction_timeout": 0,
            "transaction_start_time": 0,
            "producer_id": 0,
            "producer_epoch": 0,
        }
    topics: dict[str, list[int]] = {}
    for topic, index in description.partitions:
        topics.setdefault(topic, []).append(index)
    return {
        "transactional_id": description.transactional_id,
        "transaction_state": description.state,
        "transaction_timeout": description.timeout_ms,
        "transaction_start_time": description.start_ms,
        "producer_id": description.producer_id,
        "producer_epoch": description.producer_epoch,
        "topics": [{"topic": name, "partitions": indexes} for name, indexes in topics.items()],
    }


def _refused(
    transactional_id: str, error: KafkaError
) -> "responses.DescribeTransactions.TransactionState":
    return _state(TransactionDescription(transactional_id=transactional_id, error=error.number))


def _show_topics(access: Access, state: object, request: object, values: Any) -> Steps[Any]:
    """Remove from the answer the topics that the client may not describe."""
    shown: list[Any] = []
    counter = StepCounter(DESCRIBED_A_STEP)
    for each in values["transaction_states"]:  # each transaction is described in its own step
        topics = [
            topic
            for topic in each.get("topics", ())
            if access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic["topic"])
        ]
        shown.append({**each, "topics": topics} if "topics" in each else each)
        if counter.ends_steps(1 + len(topics)):
            yield
    return {**values, "transaction_states": shown}


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        control_api(
            api_keys.DESCRIBE_TRANSACTIONS,
            (0, 0),
            describe,
            of_each("transaction_states", "transactional_ids", _refused),
            rights=(
                on_each_name(
                    AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional_ids"
                ),
                OfAnswer(((AclOperation.DESCRIBE, ResourceType.TOPIC),), _show_topics),
            ),
            answer_bytes=_described_bytes,
        ),
        control_api(
            api_keys.LIST_TRANSACTIONS,
            (0, 2),
            list_transactions,
            code_only,
            rights=(
                shows_each(
                    AclOperation.DESCRIBE,
                    ResourceType.TRANSACTIONAL_ID,
                    "transaction_states",
                    "transactional_id",
                ),
            ),
            answer_bytes=_listed_bytes,
        ),
    )
