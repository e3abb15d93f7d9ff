"""Test the files of `--command-config`, for oncelog's client and for confluent-kafka."""

import pickle
from pathlib import Path

import pytest

from oncelog.client.security.client_file import read_client_file
from oncelog.client.security.config import security_config
from oncelog.client.security.librdkafka import librdkafka_config
from oncelog.client.settings import ADMIN, hidden_secrets, read_settings
from oncelog.wire.security.secret import HIDDEN, Secret

MODULE = "org.apache.kafka.common.security"
JAVA = f"""
bootstrap.servers=h:1,h:2
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={MODULE}.plain.PlainLoginModule required username="alice" password="geheim";
ssl.truststore.type=PEM
ssl.truststore.location=/ca.pem
ssl.protocol=TLSv1.3
sasl.login.refresh.window.factor=0.8
acks=all
"""
LIBRDKAFKA = """
bootstrap.servers=h:1,h:2
security.protocol=sasl_ssl
sasl.mechanisms=PLAIN
sasl.username=alice
sasl.password=geheim
ssl.ca.location=/ca.pem
"""
THEIRS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "geheim",
    "ssl.ca.location": "/ca.pem",
    "enable.ssl.certificate.verification": "true",
}
OAUTH = """
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.token.endpoint.url=https://login/token
sasl.oauthbearer.client.credentials.client.id=app
sasl.oauthbearer.client.credentials.client.secret=geheim
sasl.oauthbearer.extensions=a=1,b=2
sasl.oauthbearer.scope=kafka
https.ca.location=/ca.pem
ssl.keystore.location=/me.pem
ssl.key.password=geheim
ssl.endpoint.identification.algorithm=
"""


def read(folder: Path, text: str) -> tuple[dict[str, object], tuple[str, ...]]:
    file = folder / "client.properties"
    file.write_text(text)
    return read_client_file(file)


def in_librdkafka_s_words(config: dict[str, object]) -> dict[str, str]:
    return librdkafka_config(security_config(read_settings(ADMIN, config, {})))


def test_client_file_in_java_and_in_librdkafka_form_gives_the_same_config(tmp_path):
    java, unused = read(tmp_path, JAVA)
    assert unused == ("ssl.protocol", "sasl.login.refresh.window.factor", "acks")
    librdkafka, unused = read(tmp_path, LIBRDKAFKA)
    assert unused == ()
    assert in_librdkafka_s_words(java) == in_librdkafka_s_words(librdkafka) == THEIRS


def test_client_file_settings_show_no_secret_when_printed(tmp_path):
    for text in (JAVA, LIBRDKAFKA, OAUTH):
        config, _ = read(tmp_path, text)
        assert "geheim" not in repr(config) and HIDDEN in repr(config)
        assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sasl.pasword=geheim", "is sasl.password meant"),
        ("ssl.cipher.suites=X", "is not honoured"),
        ("sasl.client.callback.handler.class=x", "is not honoured"),
    ],
)
def test_client_file_with_a_mistyped_or_unsupported_security_setting_is_refused(
    tmp_path, text, words
):
    with pytest.raises(ValueError, match=f"client.properties: .*{words}") as failure:
        read(tmp_path, text)
    assert "geheim" not in str(failure.value)


def test_client_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"none\.properties cannot be read: No such file"):
        read_client_file(tmp_path / "none.properties")
    (tmp_path / "latin").write_bytes(b"sasl.username=M\xfcller")
    with pytest.raises(ValueError, match="is not text in UTF-8"):
        read_client_file(tmp_path / "latin")


def test_client_file_secret_is_hidden_under_each_of_its_names():
    given = {"sasl.password": "a", "ssl_keystore_key": "b", "sasl.username": "c", "linger_ms": 5}
    found = hidden_secrets(given)
    assert found == {**given, "sasl.password": Secret("a"), "ssl_keystore_key": Secret("b")}
    assert hidden_secrets(found) == found
