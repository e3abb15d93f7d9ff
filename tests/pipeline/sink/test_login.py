"""Test the login settings of a sink, and that the data sent to tasks contains no secret."""

import pickle

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.pipeline.sink import checks
from oncelog.pipeline.sink.login import ClusterLogin, client_keywords
from oncelog.wire.security.secret import HIDDEN, Secret

SCRAM = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": "geheim",
}
OAUTH = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
PROVIDER = "sasl_oauthbearer_token_provider"


def login(**others: object) -> ClusterLogin:
    return ClusterLogin.of("h:1", client_keywords({**SCRAM, "linger.ms": 5} | others))


def test_sink_login_given_by_source_names_or_keywords_is_equal():
    prefixed = {f"kafka.{name}": value for name, value in SCRAM.items()}
    keywords = {name.replace(".", "_"): value for name, value in SCRAM.items()}
    made = client_keywords(SCRAM)
    assert made == client_keywords(prefixed) == client_keywords(keywords)
    assert made["sasl_password"] == Secret("geheim")
    with pytest.raises(ValueError, match="sasl_username is given twice"):
        client_keywords({"sasl.username": "alice", "sasl_username": "bob"})


def test_sink_login_has_only_security_settings_and_prints_no_secret():
    made = login()
    assert dict(made.settings) == client_keywords(SCRAM)
    assert "geheim" not in repr(made) and HIDDEN in repr(made)
    assert pickle.loads(pickle.dumps(made)) == made


def test_sink_login_that_is_incomplete_or_has_no_effect_is_refused():
    with pytest.raises(ValueError, match=r"needs sasl\.username and"):
        login(**{"sasl.username": ""})
    with pytest.raises(ValueError, match=r"sasl\.password has no effect"):
        ClusterLogin.of("h:1", {"sasl_password": "geheim"})


def test_sink_logins_that_are_equal_have_equal_connection_keys():
    assert login().key == login().key != login(**{"sasl.username": "bob"}).key
    assert ClusterLogin("h:1").key == ClusterLogin("h:1").key != ClusterLogin("h:2").key
    assert login().key == pickle.loads(pickle.dumps(login())).key


def test_sink_login_with_a_token_function_is_equal_in_every_task():
    first = ClusterLogin.of("h:1", {**OAUTH, PROVIDER: lambda: "token"})
    second = ClusterLogin.of("h:1", {**OAUTH, PROVIDER: lambda: "token"})
    again = ClusterLogin(first.bootstrap, ((PROVIDER, str), *OAUTH.items()), first.nonce)
    assert first.key == again.key != second.key


def test_sink_topic_check_refuses_a_missing_topic_and_accepts_an_existing_one(
    cluster: Cluster, admin: BlockingAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LOOK_S", 0.5)
    there = ClusterLogin.of(cluster.bootstrap, {})
    with pytest.raises(ValueError, match="there is no topic never-made on"):
        checks.refuse_missing_topic(there, "never-made")
    admin.create_topic("made-for-the-sink", partitions=1)
    checks.refuse_missing_topic(there, "made-for-the-sink")


def test_sink_topic_check_of_a_silent_cluster_raises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "LOOK_S", 0.2)
    checks.refuse_missing_topic(ClusterLogin.of("127.0.0.1:1", {}), "t")
