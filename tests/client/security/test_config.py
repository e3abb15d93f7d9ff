"""Test security settings under the names of Kafka, librdkafka and Java clients."""

import copy
import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.security.config import SecurityConfig, security_config
from oncelog.client.settings import ADMIN, SECURITY, consumer_settings, read_settings
from oncelog.wire.security.jaas import parse_jaas
from oncelog.wire.security.secret import HIDDEN, Secret

from ...present import present

SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": "geheim",
}
MODULE = "org.apache.kafka.common.security"
PLAIN_JAAS = f'{MODULE}.plain.PlainLoginModule required username="alice" password="geheim";'
OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
}
CREDENTIALS = {
    "sasl.oauthbearer.client.credentials.client.id": "app",
    "sasl.oauthbearer.client.credentials.client.secret": "geheim",
}


def config(values: Mapping[str, object]) -> SecurityConfig | None:
    return security_config(read_settings(ADMIN, values, {}))


def test_security_config_without_a_protocol_is_plaintext():
    assert config({}) is None
    assert config({"security.protocol": "plaintext"}) is None


def test_security_config_of_sasl_ssl_with_scram_has_login_and_tls():
    made = present(config(SCRAM))
    sasl, tls = present(made.sasl), present(made.tls)
    assert (sasl.mechanism, sasl.username) == ("SCRAM-SHA-512", "alice")
    assert present(sasl.password).reveal() == "geheim"
    assert tls.checks_host and tls.verifies and tls.ca_file is None


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (  # librdkafka's
            {"security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-512",
             "sasl.username": "alice", "sasl.password": "geheim"}, SCRAM,
        ),
        (  # Java's
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
             "sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required "
                                 "username=alice password='geheim' ;"}, SCRAM,
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "ca.pem",
             "ssl.truststore.type": "PEM", "ssl.endpoint.identification.algorithm": ""},
            {"security.protocol": "ssl", "ssl.ca.location": "ca.pem",
             "ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "me.pem",
             "ssl.keystore.type": "pem", "ssl.key.password": "geheim"},
            {"security.protocol": "SSL", "ssl.certificate.location": "me.pem",
             "ssl.key.location": "me.pem", "ssl.key.password": "geheim"},
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.certificate.chain": "cert",
             "ssl.keystore.key": "key", "ssl.truststore.certificates": "ca"},
            {"security.protocol": "SSL", "ssl.certificate.pem": "cert", "ssl.key.pem": "key",
             "ssl.ca.pem": "ca"},
        ),
        (
            {**OAUTH, "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "app",
             "sasl.oauthbearer.client.secret": "geheim", "sasl.oauthbearer.scope": "s",
             "sasl.oauthbearer.extensions": "traceId=7"},
            {**OAUTH, "sasl.login.callback.handler.class":
                f"{MODULE}.oauthbearer.OAuthBearerLoginCallbackHandler",
             "sasl.jaas.config": f'{MODULE}.oauthbearer.OAuthBearerLoginModule required '
                                 'clientId="app" clientSecret="geheim" scope="s" '
                                 'extension_traceId="7";'},
        ),
        ({**OAUTH, **CREDENTIALS}, {**OAUTH, **CREDENTIALS, "sasl.jaas.config":
            f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;"}),
    ],
)  # fmt: skip
def test_security_config_with_names_of_another_client_equals_that_with_kafka_names(theirs, ours):
    assert config(theirs) == config(ours)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is one of PLAINTEXT, SSL"),
        ({"sasl.password": "geheim"}, "sasl.password has no effect .*set security.protocol=SASL"),
        ({"ssl.ca.location": "ca.pem"}, "ssl.ca.location has no effect .*security.protocol=SSL"),
        ({"security.protocol": "SASL_SSL"}, "SASL_SSL needs sasl.mechanism: PLAIN, SCRAM"),
        ({**SCRAM, "sasl.mechanism": "GSSAPI"}, "GSSAPI is not supported by this client"),
        ({**SCRAM, "sasl.username": ""}, "needs sasl.username and sasl.password"),
        ({**SCRAM, "sasl.password": "a\0b"}, "hold no NUL"),
        ({**SCRAM, "sasl.mechanisms": "PLAIN"}, "sasl.mechanism and sasl.mechanisms mean the same"),
        ({**SCRAM, "sasl.jaas.config": PLAIN_JAAS}, "but sasl.mechanism is SCRAM"),
        ({**SCRAM, "sasl.mechanism": "PLAIN", "sasl.password": "other",
          "sasl.jaas.config": PLAIN_JAAS}, "sasl.password and sasl.jaas.config differ"),
        ({**SCRAM, "sasl.jaas.config": "com.example.MyModule required;"}, "MyModule is not known"),
        ({**SCRAM, "sasl.mechanism": "PLAIN", "sasl.jaas.config":
          f'{MODULE}.plain.PlainLoginModule required user_alice="geheim";'},
         "would not be honoured"),
        ({**SCRAM, "ssl.truststore.location": "t.jks", "ssl.truststore.type": "JKS"},
         "keytool -list -rfc -keystore t.jks > ca.pem"),
        ({**SCRAM, "ssl.truststore.location": "t.jks", "ssl.truststore.password": "geheim"},
         "keytool -list -rfc -keystore t.jks > ca.pem"),
        ({**SCRAM, "ssl.keystore.location": "k.p12", "ssl.keystore.type": "PKCS12"},
         "openssl pkcs12 -in client.p12 -out client.pem"),
        ({**SCRAM, "ssl.certificate.location": "c.pem"}, "needs its key"),
        ({**SCRAM, "ssl.key.location": "c.pem"}, "needs the certificate"),
        ({**SCRAM, "ssl.ca.location": "a", "ssl.ca.pem": "b"}, "both name the CAs"),
        ({**SCRAM, "ssl.enabled.protocols": "TLSv1"}, "is a list of TLSv1.2, TLSv1.3"),
        ({**SCRAM, "ssl.cipher.suites": "X"}, "no setting ssl.cipher.suites"),
        ({**OAUTH}, "client.credentials.client.id and"),
        ({**OAUTH, **CREDENTIALS, "sasl.oauthbearer.token.provider": str}, "needs one of"),
        ({**OAUTH, "sasl.oauthbearer.token.endpoint.url": "file:///t"}, "looks like https://"),
        ({**OAUTH, **CREDENTIALS, "sasl.oauthbearer.extensions": "a-b=1"}, "SASL extension"),
        ({"sasl.oauthbearer.token.provider": "a.b"}, "is a function"),
        ({**OAUTH, "sasl.login.callback.handler.class": "my.Own"}, "is one of org.apache"),
    ],
)  # fmt: skip
def test_security_settings_that_cannot_be_honoured_are_refused(values, words):
    with pytest.raises(ValueError, match=words) as failure:
        config(values)
    assert "geheim" not in str(failure.value)


def test_security_config_printed_in_any_form_shows_no_secret():
    for values in (SCRAM, {**OAUTH, **CREDENTIALS}):
        settings = consumer_settings(values, {})
        made = security_config(settings)
        for text in (repr(settings), str(settings), repr(made), f"{made}"):
            assert "geheim" not in text
        assert HIDDEN in repr(made)
    assert present(present(present(config(SCRAM)).sasl).password).reveal() == "geheim"


def test_security_setting_with_a_secret_has_the_secret_type():
    for row in SECURITY:
        if any(word in row.name for word in ("password", "secret", "jaas", "key.pem")):
            assert row.kind is Secret, row.name


def test_security_config_is_pickled_copied_and_hashed_as_an_equal_value():
    for values in (SCRAM, {**OAUTH, **CREDENTIALS}, {"security.protocol": "SSL"}):
        made = config(values)
        assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)
        assert hash(made) == hash(pickle.loads(pickle.dumps(made)))


def own_token() -> str:
    return "token"


def test_token_provider_named_as_text_is_imported_or_refused():
    oauth = {k: v for k, v in OAUTH.items() if not k.endswith("url")}
    name = "sasl.oauthbearer.token.provider"
    made = present(config({**oauth, name: f"{__name__}:own_token"}))
    assert present(present(made.sasl).tokens).provider is own_token
    for text, words in (
        ("own_token", "as text package.module:function"),
        ("nowhere.at.all:own_token", "cannot be imported"),
        (f"{__name__}:other", "cannot be imported"),
        (f"{__name__}:SCRAM", "is a function, not dict"),
    ):
        with pytest.raises(ValueError, match=words):
            config({**oauth, name: text})


def test_password_given_as_a_secret_object_equals_one_given_as_text():
    assert config({**SCRAM, "sasl.password": Secret("geheim")}) == config(SCRAM)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('a.b.M required x="1" y="a\\"b\\\\c;d=e" ;', {"x": "1", "y": 'a"b\\c;d=e'}),
        ("M  required\n  x='it\"s'\n y=plain;", {"x": 'it"s', "y": "plain"}),
        ("M required;", {}),
        ('M OPTIONAL x="";', {"x": ""}),
        (
            r'M required x="x\ny\101\477\v\a\b\f\r\tz\q\\\"\0e\18";',  # as Java's StreamTokenizer
            {"x": "x\nyA'7\v\a\b\f\r\tzq\\\"\0e\x018"},
        ),
    ],
)
def test_parse_jaas_returns_the_login_module_and_its_options(text, options):
    assert parse_jaas(Secret(text)) == ("M", options)


@pytest.mark.parametrize(
    "text",
    ["", "M", "M required", "M sometimes;", 'M required p="geheim"', 'M required p="geheim;',
     'M required p "geheim";', 'M required "geheim"=p;', "M required p=;", "M required; N",
     'M required p="geheim"; M required p="geheim";'],
)  # fmt: skip
def test_parse_jaas_refuses_other_text_without_repeating_it(text):
    with pytest.raises(ValueError, match=r"sasl\.jaas\.config") as failure:
        parse_jaas(Secret(text))
    assert "geheim" not in str(failure.value)


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,9}", fullmatch=True), st.text()))
def test_parse_jaas_returns_quoted_values(options):
    quoted = " ".join(
        '{}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"'))
        for name, value in options.items()
    )
    assert parse_jaas(Secret(f"M required {quoted};")) == ("M", options)


@given(st.text())
def test_parse_jaas_of_any_text_returns_options_or_raises_value_error(text):
    try:
        parse_jaas(Secret(text))
    except ValueError as problem:
        assert str(problem).startswith("sasl.jaas.config")


@pytest.mark.parametrize("name", ["sasl.password", "sasl.username", "sasl.mechanism"])
def test_login_setting_given_as_bytes_is_refused(name):
    """Python would convert the bytes to another text, such as "b'...'"."""
    with pytest.raises(ValueError, match=f"{name} is given as text, not as bytes") as failure:
        config({**SCRAM, name: b"geheim"})
    assert "geheim" not in str(failure.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://login.example.org:99999/token",
        "https://login.example.org:port/token",
        "https://login.example.org/to ken",
        "https://login.example.org/tök",
        "https://[::1/token",
        "https://app:geheim@login.example.org/token",
    ],
)
def test_token_endpoint_that_cannot_be_requested_is_refused_at_once(url):
    with pytest.raises(ValueError, match=r"endpoint\.url looks like https") as failure:
        config({**OAUTH, **CREDENTIALS, "sasl.oauthbearer.token.endpoint.url": url})
    assert "geheim" not in str(failure.value)
