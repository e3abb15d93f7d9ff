"""Rules for principals as Kafka's SslPrincipalMapper applies them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.security.principal_rules import mapped_name, parse_principal_rules

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
def test_first_rule_that_fits_names_the_principal(
    rules: str, name: str, mapped: str | None
) -> None:
    assert mapped_name(parse_principal_rules(rules), name) == mapped


@pytest.mark.parametrize(
    "rules",
    ["default", "RULE:", "RULE:^CN=(.*)$/$1", "RULE:^CN=(.*)$/$1/X", "RULE:(/$1/", "RULE:a/$1/",
     "DEFAULT DEFAULT"],
)  # fmt: skip
def test_text_that_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError):
        parse_principal_rules(rules)


@given(st.text(alphabet="RULE:DFAT/$1\\(),L ^"), st.text())
def test_any_text_is_rules_or_refused(rules: str, name: str) -> None:
    try:
        parsed = parse_principal_rules(rules)
    except ValueError:
        return
    mapped_name(parsed, name)
