"""Test that DeleteAcls is bounded, and finds the matching ACLs in steps."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.coordinator.acls.acl_table import AclTable
from oncelog.coordinator.acls.bindings import AclBinding, AclFilter
from oncelog.coordinator.metadata.commands import CreateAcls
from oncelog.node.config.authorizer_keys import STANDARD_AUTHORIZER
from oncelog.node.handlers.metadata.acls import DELETED_MAX, SCANS_MAX, delete_acls, finding
from oncelog.node.listener.dispatch import RequestContext
from oncelog.runtime.steps import MADE_A_STEP, run_to_end
from oncelog.wire.acls import AclOperation, AclPermission, PatternType, ResourceType
from oncelog.wire.errors import InvalidRequest
from oncelog.wire.framing import RequestHeader

from ..own_broker import running

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER}


def acl(name: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        name,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )


def asked(name: str | None = None, resource_type: int = ResourceType.TOPIC) -> Any:
    """Return a DeleteAcls filter for one ACL of this name, or for all of the type for None."""
    return SimpleNamespace(
        resource_type_filter=resource_type,
        pattern_type_filter=PatternType.ANY if name is None else PatternType.LITERAL,
        resource_name_filter=name,
        principal_filter=None if name is None else "User:alice",
        host_filter=None if name is None else "*",
        operation=AclOperation.ANY if name is None else AclOperation.READ,
        permission_type=AclPermission.ANY if name is None else AclPermission.ALLOW,
    )


def table(acls: int) -> AclTable:
    held = AclTable()
    for number in range(acls):
        held.add(acl(f"t{number}"))
    return held


@pytest.mark.parametrize(
    "filters",
    [
        [asked("t1")] * 5_000,
        [asked(resource_type=99)] * 5_000,
        [asked(resource_type=ResourceType.GROUP)] * 500,
    ],
    ids=["of one ACL", "invalid", "of few ACLs"],
)
def test_acl_deletion_with_many_filters_is_matched_in_steps(filters: Sequence[Any]) -> None:
    steps = finding(table(MADE_A_STEP - 1), filters)
    assert sum(1 for _ in steps) >= len(filters) // MADE_A_STEP


def test_acl_deletion_with_an_exact_filter_scans_no_acls() -> None:
    held = table(20_000)
    steps = sum(1 for _ in finding(held, [asked(f"t{number}") for number in range(1_000)]))
    assert steps < 100
    _, gone = run_to_end(finding(held, [asked("t7")]))
    assert list(gone) == [acl("t7")]


@pytest.mark.parametrize(
    ("acls", "filters"), [(DELETED_MAX + 1, 1), (DELETED_MAX // 2, 3), (1, SCANS_MAX + 1)]
)
def test_acl_deletion_with_too_many_filters_or_matches_is_refused(acls: int, filters: int) -> None:
    with pytest.raises(InvalidRequest):
        run_to_end(finding(table(acls), [asked()] * filters))


def test_acl_deletion_with_an_exact_filter_finds_the_same_as_a_scan() -> None:
    held = table(3)
    for name in ("t1", "t9"):
        wanted = AclFilter(**{field: getattr(acl(name), field) for field in AclBinding.__slots__})
        assert wanted.only == acl(name)
        scanned = [each for each in held if wanted.matches(each)]
        assert run_to_end(held.matching(wanted)) == scanned


async def test_acl_deletion_removes_and_reports_the_acls(tmp_path: Path) -> None:
    async with running(tmp_path, settings=SETTINGS) as broker:
        context = RequestContext(broker.services, 1, "127.0.0.1")
        command = CreateAcls((acl("orders"), acl("bills")))
        await broker.services.controller.submit(command, timeout_ms=20_000)
        request: Any = SimpleNamespace(filters=[asked("orders"), asked("none")])
        answer: Any = await delete_acls(context, RequestHeader(31, 3, 1, "it", 0), request)
        found = [
            [each["resource_name"] for each in result["matching_acls"]]
            for result in answer["filter_results"]
        ]
        assert found == [["orders"], []]
        assert list(broker.services.state.acls) == [acl("bills")]
