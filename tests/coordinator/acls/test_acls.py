"""Test ACL decisions against a naive implementation of Kafka's rules, and their CPU time."""

import time
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.acls.acl_table import AclTable
from oncelog.coordinator.acls.authorizer import AclAuthorizer
from oncelog.coordinator.acls.bindings import AclBinding, AclFilter, check_binding
from oncelog.runtime.steps import run_to_end
from oncelog.wire.acls import AclOperation as Op
from oncelog.wire.acls import AclPermission, PatternType, ResourceType, operation_bits
from oncelog.wire.errors import InvalidRequest

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC = ResourceType.TOPIC
PRINCIPALS = ("User:alice", "User:bob", "Group:alice")
HOSTS = ("10.0.0.1", "::1")
NAMES = ("a", "ab", "abc", "b", "*")
OPERATIONS = (
    Op.READ, Op.WRITE, Op.ALTER, Op.DELETE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
)  # fmt: skip

bindings = st.builds(
    AclBinding,
    resource_type=st.sampled_from((TOPIC, ResourceType.GROUP)),
    pattern_type=st.sampled_from((LITERAL, PREFIXED)),
    name=st.sampled_from(NAMES),
    principal=st.sampled_from((*PRINCIPALS, "User:*")),
    host=st.sampled_from((*HOSTS, "*")),
    operation=st.sampled_from((*OPERATIONS, Op.ALL)),
    permission=st.sampled_from((ALLOW, DENY)),
)
filters = st.builds(
    AclFilter,
    resource_type=st.sampled_from((ResourceType.ANY, TOPIC, ResourceType.GROUP)),
    pattern_type=st.sampled_from(list(PatternType)),
    name=st.sampled_from((None, *NAMES)),
    principal=st.sampled_from((None, *PRINCIPALS)),
    host=st.sampled_from((None, *HOSTS, "*")),
    operation=st.sampled_from((Op.ANY, *OPERATIONS)),
    permission=st.sampled_from(list(AclPermission)),
)


def acl(
    name: str, operation: Op, permission: AclPermission = ALLOW, **others: object
) -> AclBinding:
    values: dict[str, object] = {
        "resource_type": TOPIC,
        "pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        **others,
    }
    return AclBinding(name=name, operation=operation, permission=permission, **values)  # type: ignore[arg-type]


def table_of(acls: list[AclBinding]) -> AclTable:
    table = AclTable()
    for each in acls:
        table.add(each)
    return table


class Holder(NamedTuple):
    acls: AclTable


def holding(acls: list[AclBinding]) -> Holder:
    return Holder(table_of(acls))


def is_about(binding: AclBinding, kind: int, name: str) -> bool:
    if binding.resource_type != kind:
        return False
    if binding.pattern_type == PREFIXED:
        return name.startswith(binding.name)
    return binding.name in (name, "*")


def names_operation(binding: AclBinding, operation: Op) -> bool:
    if binding.operation in (Op.ALL, operation):
        return True
    if binding.permission == DENY:
        return False
    if operation == Op.DESCRIBE:
        return binding.operation in (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER)
    return operation == Op.DESCRIBE_CONFIGS and binding.operation == Op.ALTER_CONFIGS


def naive(
    acls: list[AclBinding], everyone: bool, principal: str, host: str, operation: Op, name: str
) -> bool:
    about = [each for each in acls if is_about(each, TOPIC, name)]
    mine = [
        each.permission
        for each in about
        if each.principal in (principal, "User:*")
        and each.host in (host, "*")
        and names_operation(each, operation)
    ]
    if DENY in mine:
        return False
    return ALLOW in mine or (everyone and not about)


def naive_any(acls: list[AclBinding], principal: str, host: str, operation: Op) -> bool:
    mine = [
        each
        for each in acls
        if each.resource_type == TOPIC
        and each.principal in (principal, "User:*")
        and each.host in (host, "*")
        and each.operation in (operation, Op.ALL)
    ]
    denied = [each for each in mine if each.permission == DENY]
    if any((each.pattern_type, each.name) == (LITERAL, "*") for each in denied):
        return False

    def is_covered(allowed: AclBinding) -> bool:
        return any(
            allowed.name.startswith(each.name)
            if each.pattern_type == PREFIXED
            else allowed.pattern_type == LITERAL and allowed.name == each.name
            for each in denied
        )

    allowed = [each for each in mine if each.permission == ALLOW]
    return any(
        (each.pattern_type, each.name) == (LITERAL, "*") or not is_covered(each) for each in allowed
    )


@given(st.lists(bindings, max_size=8), st.lists(bindings, max_size=4), st.booleans())
def test_acl_decisions_after_random_changes_equal_those_of_a_naive_model(
    added: list[AclBinding], removed: list[AclBinding], everyone: bool
):
    table = table_of(added)
    for each in removed:
        table.remove(each)
    kept = [each for each in dict.fromkeys(added) if each not in removed]
    authorizer = AclAuthorizer(Holder(table), allows_everyone=everyone)
    assert list(table) == kept
    for principal, host, operation in product(PRINCIPALS, HOSTS, OPERATIONS):
        for name in NAMES:
            decided = authorizer.allows(principal, host, operation, TOPIC, name)
            assert decided == naive(kept, everyone, principal, host, operation, name)


@given(st.lists(bindings, max_size=8))
def test_acl_check_of_any_topic_equals_that_of_a_naive_model(acls: list[AclBinding]):
    authorizer = AclAuthorizer(holding(acls))
    for principal, operation in product(PRINCIPALS, (Op.WRITE, Op.DESCRIBE)):
        decided = run_to_end(authorizer.allows_any(principal, HOSTS[0], operation, TOPIC))
        by_name = naive(acls, False, principal, HOSTS[0], operation, "hardcode")
        assert decided == (by_name or naive_any(acls, principal, HOSTS[0], operation))


@given(st.lists(bindings, max_size=8), filters)
def test_acl_filter_returns_the_matching_acls_in_their_order(
    acls: list[AclBinding], wanted: AclFilter
):
    found = run_to_end(table_of(acls).matching(wanted))
    assert found == [each for each in dict.fromkeys(acls) if wanted.matches(each)]


@pytest.mark.parametrize(
    ("pattern_type", "name", "found"),
    [
        (PatternType.MATCH, "ab", {"a+", "ab", "*"}),
        (PatternType.LITERAL, "ab", {"ab"}),
        (PatternType.PREFIXED, "ab", set()),
        (PatternType.PREFIXED, "a", {"a+"}),
        (PatternType.ANY, "a", {"a", "a+"}),
        (PatternType.ANY, None, {"a", "a+", "ab", "*"}),
        (PatternType.MATCH, "*", {"*"}),
    ],
)
def test_acl_filter_by_name_matches_like_apache_kafka(
    pattern_type: PatternType, name: str | None, found: set[str]
):
    acls = [acl(each, Op.READ) for each in ("a", "ab", "*")]
    acls.append(acl("a", Op.READ, pattern_type=PREFIXED))
    matching = run_to_end(table_of(acls).matching(AclFilter(TOPIC, pattern_type, name)))
    assert {each.name + "+" * (each.pattern_type == PREFIXED) for each in matching} == found


def test_acl_deny_overrides_an_allow_of_any_pattern():
    acls = [acl("*", Op.ALL), acl("secret.", Op.READ, DENY, pattern_type=PREFIXED)]
    authorizer = AclAuthorizer(holding(acls))
    assert not authorizer.allows("User:alice", "::1", Op.READ, TOPIC, "secret.x")
    assert authorizer.allows("User:alice", "::1", Op.DESCRIBE, TOPIC, "secret.x")


def test_super_user_is_allowed_despite_a_deny():
    acls = [acl("*", Op.ALL, DENY, principal="User:*")]
    authorizer = AclAuthorizer(holding(acls), super_users=frozenset({"User:root"}))
    assert authorizer.allows("User:root", "::1", Op.READ, TOPIC, "t")
    assert run_to_end(authorizer.allows_any("User:root", "::1", Op.WRITE, TOPIC))
    assert not authorizer.allows("User:alice", "::1", Op.READ, TOPIC, "t")


def test_authorized_operations_of_a_topic_have_the_bits_of_apache_kafka():
    authorizer = AclAuthorizer(holding([acl("t", Op.READ), acl("t", Op.ALTER_CONFIGS)]))
    expected = (Op.READ, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)
    assert authorizer.operations("User:alice", "::1", TOPIC, "t") == operation_bits(expected)


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": ResourceType.ANY},
        {"resource_type": 99},
        {"pattern_type": PatternType.MATCH},
        {"operation": Op.ANY},
        {"permission": AclPermission.ANY},
        {"name": ""},
        {"name": "x" * 1001},
        {"principal": "alice"},
        {"resource_type": ResourceType.CLUSTER},
    ],
)
def test_acl_binding_that_is_invalid_is_refused(wrong: dict[str, object]):
    values = {"name": "t", "operation": Op.READ, "permission": ALLOW, **wrong}
    with pytest.raises(InvalidRequest):
        check_binding(acl(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"resource_type": 0}, {"pattern_type": 0}, {"operation": 99}])
def test_acl_filter_with_unknown_numbers_is_refused(wrong: dict[str, int]):
    with pytest.raises(InvalidRequest):
        AclFilter(**wrong).check()  # type: ignore[arg-type]


def test_acl_decision_over_100_000_acls_takes_microseconds():
    table = AclTable()
    for number in range(100_000):
        kind = PREFIXED if number % 2 else LITERAL
        table.add(acl(f"t{number}.", Op.READ, principal=f"User:{number % 97}", pattern_type=kind))
    authorizer = AclAuthorizer(Holder(table))
    best_s = 1.0
    for _ in range(5):
        begin_s = time.thread_time()
        for number in range(1_000):
            name, principal = f"t{number}.x", f"User:{number % 97}"
            assert authorizer.allows(principal, "::1", Op.READ, TOPIC, name) == bool(number % 2)
        best_s = min(best_s, (time.thread_time() - begin_s) / 1_000)
    assert best_s < 100e-6  # some 3 where nothing else runs; walking all takes 20 000
