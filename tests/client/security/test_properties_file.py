"""Test the parsing of Java properties files, in the forms that Java accepts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.security.properties_file import known_settings, parse_properties
from oncelog.client.settings import ADMIN, read_settings

FILE = r"""
# comment
! another
security.protocol = SASL_SSL
sasl.mechanism:SCRAM-SHA-512
ssl.truststore.location C:\\certs\\ca.pem
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="alice" \
    password="ge\\"heim";
client.id=caf\u00e9
empty=
 indented=yes
a\ b\==c\=d
acks=all
acks=1"""


def test_properties_file_with_each_form_of_line_is_parsed():
    assert parse_properties(FILE) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.truststore.location": r"C:\certs\ca.pem",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="ge\\"heim";',
        "client.id": "café",
        "empty": "",
        "indented": "yes",
        "a b=": "c=d",
        "acks": "1",
    }


def test_properties_file_settings_of_other_clients_are_returned_as_unused():
    names = [name for row in ADMIN for name in (row.name, *row.aliases)]
    known, unused = known_settings(parse_properties(FILE), names)
    assert unused == ("empty", "indented", "a b=", "acks")
    settings = read_settings(ADMIN, known, {})
    assert settings.client_id == "café"
    assert "heim" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ssl.ca.locaton", "not honoured by this client; is ssl.ca.location meant"),
        ("sasl.kerberos.service.name", "not honoured"),
        ("ssl.keystore.passwort", "is ssl.keystore.password meant"),
    ],
)
def test_properties_file_with_a_mistyped_or_unsupported_security_setting_is_refused(name, words):
    with pytest.raises(ValueError, match=words) as failure:
        known_settings({name: "geheim"}, [n.name for n in ADMIN])
    assert "geheim" not in str(failure.value)


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if not c.isalnum() else c for c in text)


TEXTS = st.text(st.characters(max_codepoint=0xD7FF))


@given(st.dictionaries(TEXTS.filter(bool), TEXTS))
def test_properties_with_unicode_escapes_are_parsed(pairs):
    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in pairs.items())
    assert parse_properties(text) == pairs


@given(st.text())
def test_properties_file_of_any_text_is_parsed_without_an_error(text):
    assert isinstance(parse_properties(text), dict)


def test_properties_file_character_beyond_16_bits_is_parsed_from_two_escapes():
    assert parse_properties(r"sasl.password=a\ud83d\ude00z") == {"sasl.password": "a\U0001f600z"}


@pytest.mark.parametrize("character", "\x0b\x1c\x1d\x1e\x85\u2028\u2029")
def test_properties_file_line_ends_only_at_line_ends_of_java(character):
    text = f"sasl.password=ge{character}heim\rsasl.username=alice\r\nclient.id=c"
    assert parse_properties(text) == {
        "sasl.password": f"ge{character}heim",
        "sasl.username": "alice",
        "client.id": "c",
    }


def test_properties_file_with_a_byte_order_mark_keeps_its_first_setting():
    """Read as part of the name, the mark would hide the first setting, often security.protocol."""
    assert parse_properties("\ufeffsecurity.protocol=SSL") == {"security.protocol": "SSL"}
