"""Test each API without rights, with all rights, and without one of them, as in Kafka.

The rights in each row of the dispatch table are compared with Kafka's. Each right is then tested on
a broker.
"""

import asyncio
import logging
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.acls.bindings import AclBinding
from oncelog.coordinator.metadata.commands import CreateAcls, DeleteAcls
from oncelog.coordinator.security.principal import Principal
from oncelog.node.config.authorizer_keys import STANDARD_AUTHORIZER
from oncelog.node.groups.coordinator import OFFSETS_TOPIC
from oncelog.node.handlers import api_table
from oncelog.node.handlers.api_table import served_apis
from oncelog.node.listener.dispatch import Dispatcher, RequestContext
from oncelog.node.security.rights import ByHandler, EachItem, OfAnswer, Right
from oncelog.wire.acls import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages import fetch, produce
from oncelog.wire.messages.apis import API_NAMES

from ...awaiting import until
from ..fake_broker import request
from ..own_broker import OwnBroker, running
from .rights_by_api import BY_API, MISSING, TOPIC, Asked, body_values

LOG = logging.getLogger("oncelog.test")
TABLE = {API_NAMES[api.key]: api for api in served_apis(LOG)}
ALICE = Principal("User", "alice")
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
OPERATIONS = {each.word: each for each in AclOperation}
TYPES = {each.word: each for each in ResourceType}
CASES = [(name, number) for name, asked in BY_API.items() for number in range(len(asked))]
Refused = dict[str, bool]  # whether each is refused, by what is missing


def words_of(rule: Any) -> Iterator[str]:
    """Yield the rights in a rule of the dispatch table, as in rights_by_api."""
    if isinstance(rule, OfAnswer | ByHandler):
        for operation, resource_type in rule.needs:
            yield f"{operation.word} {resource_type.word}"
    else:
        operations = rule.operations if isinstance(rule, Right) else (rule.operation,)
        for operation in operations:
            for resource_type in rule.resource_types:
                yield f"{operation.word} {resource_type.word}"
    if isinstance(rule, EachItem | OfAnswer) and rule.unless is not None:
        yield from words_of(rule.unless)


def alternatives(right: str) -> list[str]:
    return right.rstrip("?").split("|")


def acl_of(right: str) -> AclBinding:
    operation, resource_type = right.split()
    is_cluster = resource_type == "Cluster"
    return AclBinding(
        TYPES[resource_type],
        PatternType.LITERAL,
        CLUSTER_NAME if is_cluster else "*",
        str(ALICE),
        "127.0.0.1",
        OPERATIONS[operation],
        AclPermission.ALLOW,
    )


def error_codes(value: Any) -> Iterator[int]:
    """Yield all error codes in a decoded answer."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from error_codes(each)
        return
    slots = chain.from_iterable(getattr(c, "__slots__", ()) for c in type(value).__mro__)
    for name in (*slots, *getattr(value, "__dict__", ())):
        field = getattr(value, name, None)
        if name.endswith("error_code") and isinstance(field, int):
            yield field
        elif not isinstance(field, int | str | bytes | None):
            yield from error_codes(field)


class Matrix:
    """A broker with an authorizer, and a client with rights that the test changes."""

    def __init__(self, broker: OwnBroker) -> None:
        self._broker = broker
        self._dispatcher = Dispatcher(TABLE.values(), LOG)
        self._context = RequestContext(
            broker.services, connection_id=1, peer_host="127.0.0.1", principal=ALICE
        )

    async def is_refused(self, name: str, asked: Asked, rights: list[str]) -> bool:
        """Return whether a request with these rights gets an error about a missing right."""
        await self._allow(rights)
        api = TABLE[name]
        version = api.max_version if asked.version is None else asked.version
        values = body_values(api.key, asked)
        if name == "Produce":
            values = produce.encode_request(values, version)
        elif name == "Fetch":
            values = fetch.encode_request(values, version)
        if isinstance(values, list):
            values = b"".join(values)
        answer = await request(self._dispatcher, self._context, api.key, version, values).value()
        assert not isinstance(answer, str), f"{name} was not answered: {answer}"
        if MISSING in self._broker.state.topics:
            await self._broker.delete(MISSING)
        return not REFUSALS.isdisjoint(error_codes(answer))

    async def _allow(self, rights: list[str]) -> None:
        controller = self._broker.services.controller
        await controller.submit(DeleteAcls(tuple(self._broker.state.acls)))
        await controller.submit(CreateAcls(tuple(map(acl_of, rights))))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Refused]:
    async def try_all(root: Path) -> dict[tuple[str, int], Refused]:
        found: dict[tuple[str, int], Refused] = {}
        settings = {
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "offsets.topic.num.partitions": "1",
            "transaction.two.phase.commit.enable": "true",
        }
        async with running(root, settings=settings) as broker:
            await broker.create(TOPIC)
            matrix = Matrix(broker)
            finding = BY_API["FindCoordinator"][0]
            await matrix.is_refused("FindCoordinator", finding, [*finding.rights])
            await until(lambda: broker.serves(OFFSETS_TOPIC, 1))
            for name, number in CASES:
                asked = BY_API[name][number]
                of_case = found[name, number] = {}
                every = [alternatives(right) for right in asked.rights]
                of_case["all"] = await matrix.is_refused(name, asked, [])
                for place, right in enumerate(every):
                    others = [each[0] for each in every[:place] + every[place + 1 :]]
                    of_case["|".join(right)] = await matrix.is_refused(name, asked, others)
                    for one in right:
                        of_case[f"nothing, by {one}"] = await matrix.is_refused(
                            name, asked, [*others, one]
                        )
        return found

    return asyncio.run(try_all(tmp_path_factory.mktemp("matrix")))


@pytest.mark.parametrize("name", TABLE)
def test_permission_matrix_row_of_each_api_has_the_rights_of_kafka(name: str):
    rights = TABLE[name].rights
    assert rights is not None
    expected = {
        one for asked in BY_API[name] for each in asked.rights for one in alternatives(each)
    }
    assert {word for rule in rights for word in words_of(rule)} == expected


@pytest.mark.parametrize(("name", "number"), CASES)
def test_client_without_a_required_right_is_refused_and_with_all_rights_is_served(
    name: str, number: int, outcomes: dict[tuple[str, int], Refused]
):
    asked = BY_API[name][number]
    expected = {"all": any(not right.endswith("?") for right in asked.rights)}
    for right in asked.rights:
        expected["|".join(alternatives(right))] = not right.endswith("?")
        expected |= {f"nothing, by {one}": False for one in alternatives(right)}
    assert outcomes[name, number] == expected


def test_dispatch_table_with_an_api_without_rights_is_refused(monkeypatch: pytest.MonkeyPatch):
    rows = tuple(api._replace(rights=None) for api in TABLE.values() if api.key == 10)
    monkeypatch.setattr(api_table.coordinators, "apis", lambda creation: rows)
    with pytest.raises(AssertionError, match="FindCoordinator"):
        served_apis(LOG)
