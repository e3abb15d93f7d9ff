"""The APIs of client quotas (KIP-546).

DescribeClientQuotas, AlterClientQuotas 0-1  users and client ids, by name or their defaults, with
                                             producer_byte_rate, consumer_byte_rate and
                                             request_percentage; IP addresses or their default, with
                                             connection_creation_rate (KIP-612).

Other quotas are refused, since the brokers would not apply them. Host names in place of IP
addresses are refused, while Kafka resolves them.
"""

from collections.abc import Mapping
from typing import Any

from ....coordinator.metadata.commands import AlterClientQuotas
from ....coordinator.quotas.quota_table import (
    DEFAULT,
    NAME_BYTES_MAX,
    QuotaChange,
    QuotaEntity,
    check_quota,
)
from ....runtime.steps import StepCounter, Steps, made
from ....wire.acls import AclOperation
from ....wire.errors import InvalidRequest, KafkaError, UnsupportedVersion, error_for
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...config.listeners import plain_address
from ...listener.dispatch import Api, RequestContext, control_api
from ...security.rights import on_cluster
from ..answers import NO_ERROR, CodeAndMessage, code_and_message, entries_bytes, of_each

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, OF_DEFAULT, ANY = 0, 1, 2  # how a component of a filter is matched
OPERATIONS_MAX = 100  # on one entity


def describe_client_quotas(
    context: RequestContext, header: RequestHeader, request: "requests.DescribeClientQuotasRequest"
) -> "Steps[responses.DescribeClientQuotas.Response]":
    """Return the quotas of the entities that match a filter."""
    wanted = _wanted(request)
    entries: list[responses.DescribeClientQuotas.EntryData] = []
    counter = StepCounter()
    for entity, quotas in list(context.broker.state.quotas.items()):
        parts = _parts_of(entity)
        if all(
            kind in parts and match in (None, parts[kind]) for kind, match in wanted.items()
        ) and not (request.strict and len(parts) != len(wanted)):
            values = [{"key": key, "value": value} for key, value in sorted(quotas.items())]
            entries.append({"entity": _entity_fields(parts), "values": values})  # type: ignore[typeddict-item]
        if counter.ends_step():
            yield
    return {"error_code": 0, "entries": entries}


def _wanted(request: "requests.DescribeClientQuotasRequest") -> dict[str, str | None]:
    """Return the entity name that the filter requires for each entity type.

    DEFAULT stands for the default entity, and None for any name. Raises InvalidRequest or
    UnsupportedVersion for an invalid filter.
    """
    wanted: dict[str, str | None] = {}
    for component in request.components:
        kind, match = component.entity_type, component.match
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in wanted:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        if component.match_type == EXACT:
            if match is None:
                raise InvalidRequest(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null."
                )
            wanted[kind] = match or "\0"  # no entity has this name, so nothing matches
            if kind == IP:
                wanted[kind] = plain_address(wanted[kind] or "") or "\0"
        elif component.match_type in (OF_DEFAULT, ANY):
            if match is not None:
                raise InvalidRequest("Only MATCH_TYPE_EXACT has a match string.")
            wanted[kind] = DEFAULT if component.match_type == OF_DEFAULT else None
        else:
            raise InvalidRequest(f"Unknown match type {component.match_type}")
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return wanted


def _parts_of(entity: QuotaEntity) -> dict[str, str]:
    parts = {USER: entity.user, CLIENT_ID: entity.client_id, IP: entity.ip}
    return {kind: name for kind, name in parts.items() if name is not None}


def _entity_fields(parts: Mapping[str, str]) -> list[dict[str, str | None]]:
    return [{"entity_type": kind, "entity_name": name or None} for kind, name in parts.items()]


def _described_bytes(
    context: RequestContext, request: "requests.DescribeClientQuotasRequest"
) -> Steps[int]:
    return entries_bytes(lambda count: 5 * count, [len(context.broker.state.quotas)])


async def alter_client_quotas(
    context: RequestContext, header: RequestHeader, request: "requests.AlterClientQuotasRequest"
) -> "responses.AlterClientQuotas.Response":
    """Alter the quotas of entities, and return the outcome of each."""
    broker = context.broker
    asked = await broker.work.finish("AlterClientQuotas", made(_change, request.entries))
    changes: dict[QuotaEntity, QuotaChange] = {}
    twice = InvalidRequest("Ignoring duplicate entity")
    outcomes: list[KafkaError | QuotaChange] = []

    def sort(each: QuotaChange | KafkaError) -> None:
        if isinstance(each, QuotaChange):
            outcomes.append(twice if each.entity in changes else each)
            changes.setdefault(each.entity, each)
        else:
            outcomes.append(each)

    await broker.work.finish("AlterClientQuotas", made(sort, asked))
    items = iter(())
    if changes and not request.validate_only:
        command = AlterClientQuotas(tuple(changes.values()))
        timeout_ms = broker.config.request_timeout_ms
        result = await broker.controller.submit(command, timeout_ms=timeout_ms)
        if result.error:
            raise error_for(result.error, result.message)
        items = iter(result.items)

    def answer(
        decided: tuple["requests.AlterClientQuotasRequest.EntryData", KafkaError | QuotaChange],
    ) -> "responses.AlterClientQuotas.EntryData":
        entry, outcome = decided
        error = outcome if isinstance(outcome, KafkaError) else None
        if error is None and (item := next(items, None)) is not None and item.error:
            error = error_for(item.error, item.message)
        return _altered(entry, NO_ERROR if error is None else code_and_message(error))

    decided = zip(request.entries, outcomes, strict=True)
    return {"entries": await broker.work.finish("AlterClientQuotas", made(answer, decided))}


def _change(
    entry: "requests.AlterClientQuotasRequest.EntryData",
) -> QuotaChange | KafkaError:
    try:
        parts: dict[str, str] = {}
        for part in entry.entity:
            kind, name = part.entity_type, part.entity_name
            if kind in parts:
                raise InvalidRequest(f"Invalid client quota entity, duplicate entity entry {kind}")
            if kind not in (USER, CLIENT_ID, IP):
                raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
            if name == "":
                raise InvalidRequest(f"Empty {kind} not supported")
            if name is not None and len(name.encode()) > NAME_BYTES_MAX:
                raise InvalidRequest(f"A {kind} takes at most {NAME_BYTES_MAX} bytes.")
            parts[kind] = DEFAULT if name is None else _address(name) if kind == IP else name
        if not parts:
            raise InvalidRequest("Invalid empty client quota entity")
        if IP in parts and len(parts) > 1:
            raise InvalidRequest(
                "Invalid quota entity combination, IP entity shouldnot be combined with User or "
                "ClientId"
            )
        if len(entry.ops) > OPERATIONS_MAX:
            raise InvalidRequest(f"At most {OPERATIONS_MAX} quotas of an entity are changed.")
        values: dict[str, float | None] = {}
        for operation in entry.ops:
            value = None if operation.remove else operation.value
            if operation.key in values:
                raise InvalidRequest(f"Duplicate quota key {operation.key}")
            check_quota(operation.key, value, of_address=IP in parts)
            values[operation.key] = value
    except KafkaError as error:
        return error
    return QuotaChange(parts.get(USER), parts.get(CLIENT_ID), tuple(values.items()), parts.get(IP))


def _address(name: str) -> str:
    """Return an IP address in canonical form, or raise InvalidRequest."""
    address = plain_address(name)
    if address is None:
        raise InvalidRequest(f"{name} is not a valid IP or resolvable host.")
    return address


def _altered(
    entry: "requests.AlterClientQuotasRequest.EntryData", outcome: CodeAndMessage
) -> "responses.AlterClientQuotas.EntryData":
    def echo(part: Any) -> Any:
        return {"entity_type": part.entity_type, "entity_name": part.entity_name}

    entity: Any = Each(echo, entry.entity)
    return {**outcome, "entity": entity}


def _not_described(request: object, error: KafkaError) -> Any:
    return {**code_and_message(error), "entries": None}


def _not_altered(
    entry: "requests.AlterClientQuotasRequest.EntryData", error: KafkaError
) -> "responses.AlterClientQuotas.EntryData":
    return _altered(entry, code_and_message(error))


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        control_api(
            api_keys.DESCRIBE_CLIENT_QUOTAS,
            (0, 1),
            describe_client_quotas,
            _not_described,
            rights=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
            answer_bytes=_described_bytes,
        ),
        control_api(
            api_keys.ALTER_CLIENT_QUOTAS,
            (0, 1),
            alter_client_quotas,
            of_each("entries", "entries", _not_altered),
            rights=(on_cluster(AclOperation.ALTER_CONFIGS),),
        ),
    )
