"""Test the translation of security settings to librdkafka's names."""

import pytest

from .test_client_file import OAUTH, in_librdkafka_s_words, read


def test_client_file_with_tokens_and_certificates_is_translated_for_confluent_kafka(tmp_path):
    config, _ = read(tmp_path, OAUTH)
    assert in_librdkafka_s_words(config) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login/token",
        "sasl.oauthbearer.client.id": "app",
        "sasl.oauthbearer.client.secret": "geheim",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "a=1,b=2",
        "https.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "geheim",
        "enable.ssl.certificate.verification": "true",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert in_librdkafka_s_words({}) == {}


def test_confluent_kafka_producer_accepts_all_translated_names(tmp_path):
    confluent_kafka = pytest.importorskip("confluent_kafka")
    config, _ = read(tmp_path, OAUTH)
    words = in_librdkafka_s_words(config)
    for gone in [name for name in words if name.endswith("location") or name == "ssl.key.password"]:
        del words[gone]  # missing files
    confluent_kafka.Producer(words)


def test_token_provider_is_refused_for_confluent_kafka():
    oauth = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ValueError, match="confluent-kafka does not take"):
        in_librdkafka_s_words({**oauth, "sasl.oauthbearer.token.provider": lambda: "token"})
