"""Test the counts of records and bytes for each topic, and their sum over all topics."""

from oncelog.node.traffic import Traffic


def test_traffic_sum_keeps_the_counts_of_a_dropped_topic() -> None:
    traffic = Traffic()
    traffic.of(b"1", "orders").count_batch(3, 100)
    traffic.of(b"1", "orders").count_sent(40)
    traffic.drop(b"1")
    traffic.of(b"2", "orders").count_batch(1, 10)
    total = traffic.total
    assert (total.messages_in, total.bytes_in, total.bytes_out) == (4, 110, 40)
    assert [(name, each.messages_in) for name, each in traffic.topics()] == [("orders", 1)]


def test_traffic_of_a_recreated_topic_is_counted_apart_from_the_deleted_topic() -> None:
    traffic = Traffic()
    old, new = traffic.of(b"1", "orders"), traffic.of(b"2", "orders")
    new.count_fetch()
    new.count_refused(is_failure=True)
    traffic.drop(b"1")
    old.count_refused(is_failure=False)
    assert [(each.produced, each.fetched) for _, each in traffic.topics()] == [(1, 1)]
    assert (traffic.total.produced, traffic.total.produce_failed) == (2, 1)
