"""Test the names and values of client settings, and refused combinations."""

import pytest

from oncelog.client import BlockingConsumer
from oncelog.client.settings import CONSUMER, PRODUCER, consumer_settings, producer_settings


def test_setting_given_by_dotted_name_or_keyword_has_the_same_value():
    one = producer_settings({"linger.ms": "20", "compression.type": "zstd"}, {})
    other = producer_settings(None, {"linger_ms": 20, "compression_type": "zstd"})
    assert vars(one) == vars(other)
    assert (one.linger_ms, one.acks, one.enable_idempotence) == (20, -1, True)


def test_setting_given_as_a_keyword_overrides_the_config_dictionary():
    assert producer_settings({"linger.ms": 20}, {"linger_ms": 0}).linger_ms == 0


@pytest.mark.parametrize("row", [*PRODUCER, *CONSUMER], ids=lambda row: row.name)
def test_setting_default_passes_its_own_validation(row):
    assert row.read(row.default) == row.default or row.default is None
    assert row.name == row.name.lower() and row.keyword.isidentifier()


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"linger": 5}, "no setting linger; is linger_ms meant"),
        ({"linger_ms": "soon"}, "linger.ms is a whole number"),
        ({"linger_ms": -1}, "linger.ms lies in 0..2147483647"),
        ({"linger_ms": 1.5}, "linger.ms lies in"),
        ({"acks": "2"}, "acks is one of all"),
        ({"enable_idempotence": "yes"}, "true or false"),
        ({"compression_type": "lzma"}, "compression.type is one of none"),
        ({"enable_idempotence": True, "acks": "1"}, "idempotence needs acks to be all"),
        ({"retries": 0}, "idempotence needs retries to be above 0"),
        ({"max_in_flight_requests_per_connection": 6}, "to be at most 5"),
        ({"transactional_id": "a", "acks": "1"}, "idempotence needs acks to be all"),
        ({"transactional_id": "a", "enable_idempotence": False}, "needs enable.idempotence"),
        ({"transactional_id": ""}, "is not empty"),
        ({"transaction_two_phase_commit_enable": True}, "needs a transactional.id"),
        ({"linger_ms": 10, "delivery_timeout_ms": 5}, "delivery.timeout.ms must not be below"),
    ],
)
def test_producer_settings_refuse_an_invalid_value(keywords, sentence):
    with pytest.raises(ValueError, match=sentence.replace(".", r"\.")):
        producer_settings(None, keywords)


def test_producer_settings_without_idempotence_accept_any_acks():
    s = producer_settings(None, {"acks": "1", "retries": 0})
    assert (s.acks, s.enable_idempotence) == (1, False)
    s = producer_settings(None, {"enable_idempotence": "false", "retries": 0})
    assert (s.acks, s.enable_idempotence) == (-1, False)


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"isolation_level": "serializable"}, "isolation.level is one of"),
        ({"auto_offset_reset": "middle"}, "auto.offset.reset is one of"),
        ({"group_id": ""}, "group.id must not be empty"),
        ({"partition_assignment_strategy": "fair"}, "'fair' is not an assignor"),
        ({"partition_assignment_strategy": []}, "at least one"),
        ({"session_timeout_ms": 1000, "heartbeat_interval_ms": 1000}, "must be below"),
        ({"group_remote_assignor": "range"}, "needs group.protocol=consumer"),
        ({"client_rack": "a"}, "client.rack needs group.protocol=consumer"),
        ({"group_protocol": "consumer"}, "group.protocol=consumer needs a group.id"),
        (
            {"group_protocol": "consumer", "group_id": "g", "session_timeout_ms": 9_000},
            "session.timeout.ms is of no use with group.protocol=consumer",
        ),
    ],
)
def test_consumer_settings_refuse_an_invalid_value(keywords, sentence):
    with pytest.raises(ValueError, match=sentence.replace(".", r"\.")):
        consumer_settings(None, keywords)


def test_setting_with_a_list_is_parsed_from_comma_separated_text():
    s = consumer_settings({"partition.assignment.strategy": "range, sticky"}, {})
    assert s.partition_assignment_strategy == ("range", "sticky")
    with pytest.raises(AttributeError, match="nonsense"):
        _ = s.nonsense


def test_subscribe_with_one_text_instead_of_a_list_is_refused():
    """Each character of the text would be a topic, and no poll would return a record."""
    with (
        BlockingConsumer("127.0.0.1:1", group_id="g") as consumer,
        pytest.raises(TypeError, match=r"subscribe\(\['orders'\]\)"),
    ):
        consumer.subscribe("orders")
