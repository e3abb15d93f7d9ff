"""Test `ssl.principal.mapping.rules` as in Kafka's SslPrincipalMapper."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.security.principal_rules import NAME_MAX, mapped_name, parse_principal_rules

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        (RULES, "CN=kafka-server1,OU=ServiceUsers,O=Unknown", "kafka-server1"),
        (RULES, "CN=User,OU=AdminUsers,O=Org,L=City,ST=State,C=US", "user@adminusers"),
        (RULES, "O=Org,cn=abc.def", "ABC.DEF"),
        (RULES, "OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
        ("", "CN=a", "CN=a"),
        ("DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=(.*)$/$1/", "OU=a", None),
        (r"RULE:^CN=a\/b$/c\/d/", "CN=a/b", r"c\/d"),
        ("RULE:^CN=(a)?(.*)$/$1-$2/", "CN=b", "-b"),
    ],
)
def test_first_matching_principal_rule_names_the_principal(
    rules: str, name: str, mapped: str | None
) -> None:
    assert mapped_name(parse_principal_rules(rules), name) == mapped


@pytest.mark.parametrize(
    "rules",
    ["default", "RULE:", "RULE:^CN=(.*)$/$1", "RULE:^CN=(.*)$/$1/X", "RULE:(/$1/", "RULE:a/$1/",
     "DEFAULT DEFAULT", r"RULE:(a)\1/$1/", "RULE:(?=a)a/b/", "RULE:" + "a{1000}" * 90 + "/b/"],
)  # fmt: skip
def test_principal_rules_of_invalid_text_are_refused(rules: str) -> None:
    with pytest.raises(ValueError):
        parse_principal_rules(rules)


def test_principal_rule_with_endless_backtracking_is_answered_immediately() -> None:
    rules = parse_principal_rules("RULE:^(a|a)*b$/$1/")
    began_s = time.perf_counter()
    assert mapped_name(rules, "a" * NAME_MAX) is None
    assert time.perf_counter() - began_s < 1


def test_principal_rules_give_a_too_long_name_no_principal() -> None:
    rules = parse_principal_rules("DEFAULT")
    assert mapped_name(rules, "a" * NAME_MAX) == "a" * NAME_MAX
    assert mapped_name(rules, "a" * (NAME_MAX + 1)) is None


@given(st.text(alphabet="RULE:DFAT/$1\\(),L ^"), st.text())
def test_principal_rules_of_any_text_are_parsed_or_refused(rules: str, name: str) -> None:
    try:
        parsed = parse_principal_rules(rules)
    except ValueError:
        return
    mapped_name(parsed, name)
