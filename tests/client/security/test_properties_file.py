"""Files that Java's tools read, with all their ways to write a value."""

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


def test_a_file_with_everything():
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


def test_what_is_read_is_understood():
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
def test_a_mistyped_name_of_security_is_refused(name, words):
    with pytest.raises(ValueError, match=words) as failure:
        known_settings({name: "geheim"}, [n.name for n in ADMIN])
    assert "geheim" not in str(failure.value)


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if not c.isalnum() else c for c in text)


TEXTS = st.text(st.characters(max_codepoint=0xD7FF))


@given(st.dictionaries(TEXTS.filter(bool), TEXTS))
def test_what_java_writes_is_read_back(pairs):
    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in pairs.items())
    assert parse_properties(text) == pairs


@given(st.text())
def test_any_text_is_read(text):
    assert isinstance(parse_properties(text), dict)
