"""Test the text form of principals, as in Kafka's ACLs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.security.principal import ANONYMOUS, Principal


@given(st.from_regex(r"[A-Za-z]+", fullmatch=True), st.text())
def test_principal_written_as_text_is_parsed_back(kind: str, name: str) -> None:
    assert Principal.parse(str(Principal(kind, name))) == Principal(kind, name)


def test_principal_name_may_have_colons_and_equals_signs() -> None:
    assert Principal.parse("User:CN=a:b,O=c") == Principal("User", "CN=a:b,O=c")


@pytest.mark.parametrize("text", ["", "alice", ":alice"])
def test_principal_text_without_a_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="User:name"):
        Principal.parse(text)


def test_anonymous_principal_has_the_text_form_of_kafka() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
