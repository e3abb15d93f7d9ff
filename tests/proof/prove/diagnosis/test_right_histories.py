"""Test that correct applications, with and without faults, get no finding."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from oncelog.proof.prove.diagnosis import seen as s
from oncelog.proof.prove.diagnosis.diagnosis import Diagnosis

from .histories import GROUP, IDS, INPUT, OUTPUT, Application, aborted_batch, numbered, started

History = Iterator[s.Sighting]
UUID = "3f2b8a1c-9d4e-4f7a-8c21-0123456789ab"


def calm() -> History:
    app = yield from started()
    yield from app.run(50)
    yield from app.stop()


def aborts_then_seeks_back() -> History:
    app = yield from started()
    for _ in range(5):
        yield from app.run(2)
        yield from app.transaction(is_commit=False)
        yield from app.fetch(offset=app.offset + 30)  # a fetch that was in flight
        yield from app.run(2)  # from its old position


def hears_that_its_offsets_are_refused() -> History:
    """An application aborts and seeks back after a refused TxnOffsetCommit, or sends it again."""
    app = yield from started()
    for error, is_commit in (("STALE_MEMBER_EPOCH", False), ("NOT_COORDINATOR", True)):
        yield from app.run(2)
        yield from app.fetch()
        for offset in range(app.offset, app.offset + 3):
            yield app.produce(offset)
            yield app.produced()
        yield app.send_offsets(app.offset + 3)
        yield app.refused(error)
        if is_commit:
            yield app.send_offsets(app.offset + 3)
        yield from app.end(is_commit)
        app.offset += 3 * is_commit
    yield from app.run(2)


def offsets_of_an_aborted_transaction_that_are_refused_late(*, with_offsets: bool) -> History:
    """An application aborts, since a TxnOffsetCommit gets no answer in time."""
    app = yield from started()
    yield from app.run(2)
    yield from app.fetch()
    yield app.produce(app.offset)
    yield app.produced()
    yield replace(app.send_offsets(app.offset + 3), number=1)
    yield from app.end(is_commit=False)
    yield from app.fetch()
    for offset in range(app.offset, app.offset + 3):
        yield app.produce(offset)
        yield app.produced()
    if with_offsets:
        yield replace(app.send_offsets(app.offset + 3), number=2)
    yield replace(app.refused("INVALID_TXN_STATE"), number=1)
    yield from app.end()


def offsets_that_are_refused_after_an_abort() -> History:
    return offsets_of_an_aborted_transaction_that_are_refused_late(with_offsets=False)


def offsets_that_are_refused_after_those_of_the_next_transaction() -> History:
    return offsets_of_an_aborted_transaction_that_are_refused_late(with_offsets=True)


def zombie_is_refused_while_its_successor_commits() -> History:
    """The zombie hears of its fence between the successor's TxnOffsetCommit and EndTxn."""
    zombie = yield from started(instance="instance-1")
    yield from zombie.run(2)
    yield from zombie.fetch()
    at_s = zombie.at_s + 10
    app = yield from started(instance="instance-2", at_s=at_s, offset=zombie.offset)
    yield from app.fetch()
    yield app.produce(app.offset)
    yield app.produced()
    zombie.at_s = app.at_s
    yield zombie.send_offsets(zombie.offset + 3)
    yield app.send_offsets(app.offset + 3)
    yield zombie.refused("INVALID_PRODUCER_EPOCH")
    yield from app.end()
    app.offset += 3
    yield from app.run(2)


def batch_after_an_abort_is_refused() -> History:
    """A client reuses sequence numbers after an abort, like librdkafka. The outputs are wrong."""
    app = yield from started()
    yield from aborted_batch(app)
    for records in ((3, 4, 5), (3, 4)):  # a refused batch, and one of another size
        yield from app.fetch(6, offset=0)
        yield numbered(app, *records)
        yield replace(app.produced(is_known=False), has_error=len(records) == 3)
        yield from app.end(is_commit=False)
    yield from app.fetch(6, offset=0)
    yield numbered(app, 0, 1, 2, 3, 4, 5, sequence=3)
    yield app.produced()
    yield app.send_offsets(6)
    yield from app.end()
    yield s.SeenVerdict(at_s=500, doubled=5)


def after_an_unanswered_commit(*, begins_at: int | None, reads_at: int) -> History:
    """The position is a record of its own topic, as in Connect, so it sends no OffsetFetch."""
    app = Application(version=4)
    for connection in app.connections:
        yield s.SeenOpened(**app.at(connection))
    yield app.init()
    if begins_at is not None:
        yield s.SeenFetch(**app.at(app.reader), positions=((("positions", 0), begins_at),))
    yield from app.fetch(3)
    for topic in (OUTPUT, "positions"):
        yield app.produce(0, topic=topic)
        yield app.produced()
    yield next(app.end())
    yield app.init()
    yield app.sign()
    yield s.SeenFetch(**app.at(app.reader), positions=((("positions", 0), reads_at),))
    yield from app.fetch(3)
    yield app.produce(0)
    yield app.produced()
    yield from app.end()


def reads_its_position_in_a_topic_after_an_unanswered_commit() -> History:
    return after_an_unanswered_commit(begins_at=None, reads_at=0)


def reads_its_empty_topic_of_positions_again_after_an_unanswered_commit() -> History:
    return after_an_unanswered_commit(begins_at=0, reads_at=0)


def keeps_reading_its_topic_of_positions_after_an_unanswered_commit() -> History:
    return after_an_unanswered_commit(begins_at=0, reads_at=2)


def reads_its_positions_with_a_client_that_commits_by_a_timer() -> History:
    """The reader of the positions has joined no group, and commits offsets without use."""
    positions = ((("positions", 0), 1),)
    for each in after_an_unanswered_commit(begins_at=None, reads_at=0):
        if isinstance(each, s.SeenEndTxn):
            yield s.SeenOffsetCommit(
                at_s=each.at_s, instance=each.instance, group="positions", offsets=positions
            )
        yield each


def outputs_that_the_cluster_loses(*, is_rekeyed: bool, is_unanswered: bool) -> History:
    """Three committed outputs are lost by the cluster, which is not the application's mistake."""
    app = yield from started(output_key=(lambda key: key * 31 + 7_777_777) if is_rekeyed else int)
    yield from app.fetch(3)
    for offset in range(3):
        yield app.produce(offset)
        yield app.produced()
    yield app.send_offsets(3)
    if is_unanswered:  # and the committed offsets show that it is committed
        yield next(app.end())
        yield app.init()
        place = ((INPUT, app.partition), 3)
        asked = app.at(app.reader)
        yield s.SeenOffsetFetch(**asked, group=GROUP, is_stable=True, offsets=(place,))
    else:
        yield from app.end()
    app.offset = 3
    yield from app.run(3)
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(3)))


def rekeyed_outputs_that_the_cluster_loses() -> History:
    return outputs_that_the_cluster_loses(is_rekeyed=True, is_unanswered=False)


def outputs_of_an_unanswered_commit_that_the_cluster_loses() -> History:
    return outputs_that_the_cluster_loses(is_rekeyed=False, is_unanswered=True)


def outputs_that_are_lost_after_a_late_refusal() -> History:
    """The first Produce is refused after the second one, with the same records, was written."""
    app = yield from started()
    yield from app.fetch(3)
    first = app.produce(0, 1, 2)
    yield first
    yield app.produce(0, 1, 2)
    yield app.produced()
    refused = replace(app.produced(), has_error=True, is_refused=True)
    yield replace(refused, number=first.number)
    yield app.send_offsets(3)
    yield from app.end()
    app.offset = 3
    yield from app.run(2)
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(3)))


def outputs_under_load_that_the_cluster_loses() -> History:
    """The outputs that the cluster loses were not decoded."""
    app = yield from started()
    yield from app.run(2)
    for each in app.transaction():
        if isinstance(each, s.SeenProduce):
            each = replace(each, batches=tuple(replace(b, records=()) for b in each.batches))
        yield each
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(6, 9)))


def outputs_of_a_large_transaction_that_the_cluster_loses() -> History:
    """The last Produce has the outputs beyond the number that the diagnosis remembers."""
    app = yield from started()
    yield from app.fetch(15_000)
    yield app.produce(*range(15_000))
    yield app.produced()
    app.output_key = lambda key: key + 7_777_777
    yield app.produce(*range(6_000), topic="audit")
    yield app.produced()
    yield app.send_offsets(15_000)
    yield from app.end()
    yield s.SeenVerdict(at_s=500, lost=15_000, lost_inputs=app.inputs(range(15_000)))


def outputs_with_old_keys_that_the_cluster_loses() -> History:
    """The application has as many keys as the diagnosis remembers, and old ones come again."""
    app = yield from started(keys=20_000)
    for first in range(0, 20_000, 1_000):
        yield from app.fetch(1_000)
        yield app.produce(*range(first, first + 1_000))
        yield app.produced()
        app.offset += 1_000
        yield app.send_offsets(app.offset)
        yield from app.end()
    yield from app.fetch(3)
    yield app.produce(*range(20_000, 20_003))
    yield app.produced()
    app.output_key = lambda key: key + 7_777_777
    yield app.produce(*range(1_000), topic="audit")
    yield app.produced()
    yield app.send_offsets(20_003)
    yield from app.end()
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(20_000, 20_003)))


def filtered_outputs_that_the_cluster_loses() -> History:
    """The keys repeat, and the application also filters inputs with the keys of the lost ones."""
    app = yield from started(keys=6)
    for cycle in range(8):
        yield from app.fetch(3)
        for offset in range(app.offset, app.offset + 3) if cycle in (1, 2, 5, 6) else ():
            yield app.produce(offset)
            yield app.produced()
        yield app.send_offsets(app.offset + 3)
        yield from app.end()
        app.offset += 3
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(6, 9)))


def repartitioned_outputs_that_the_cluster_loses() -> History:
    """The inputs get other keys in a topic of the application, and its outputs have those keys."""
    app = yield from started(output_key=lambda key: key + 7_777_777)
    second = replace(app, name="billing-2", partition=7, connections=(next(IDS), next(IDS)))
    yield second.init()
    for _ in range(3):
        yield from app.transaction()
        second.at_s, second.output_key = app.at_s, int
        for each in second.transaction():
            if isinstance(each, s.SeenFetch | s.SeenTxnOffsetCommit):
                name = "positions" if isinstance(each, s.SeenFetch) else "offsets"
                ((_, offset),) = getattr(each, name)
                each = replace(each, **{name: ((("by-customer", 0), offset),)})
            elif isinstance(each, s.SeenRecords):
                each = replace(each, partition=("by-customer", 0))
            yield each
        app.at_s = second.at_s
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(3)))


def state_that_is_rebuilt_from_inputs_whose_outputs_the_cluster_loses() -> History:
    """The new owner of a partition reads the inputs before the committed offset again."""
    app = yield from started()
    yield from app.run(2)
    yield from app.stop()
    other = yield from started(instance="instance-2", at_s=app.at_s, offset=app.offset)
    yield from other.fetch(6, offset=0)
    yield from other.run(2)
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(3)))


def tries_again_from_memory(**fields: Any) -> History:
    app = yield from started(**fields)
    yield from app.run(2)
    yield from app.transaction(is_commit=False)
    for offset in range(app.offset, app.offset + 3):
        yield app.produce(offset)
    yield app.send_offsets(app.offset + 3)
    yield from app.end()
    app.offset += 3
    yield from app.run(2)


def aborts_then_tries_again_from_memory() -> History:
    yield from tries_again_from_memory()


def aborts_then_tries_again_with_other_values() -> History:
    """An application writes aborted inputs again, as outputs whose values contain the time.

    The outputs have no keys, so they are identified by their values, which differ.
    """
    yield from tries_again_from_memory(output_key=lambda _: next(IDS))


def rebalances_then_aborts() -> History:
    """An application aborts after a rebalance has given its partition to another instance.

    It needs no seek, since it does not read that partition any more.
    """
    app = yield from started()
    yield from app.run(3)
    yield from app.fetch()
    yield app.produce(app.offset)
    yield from app.join()
    app.partition, app.offset = 1, 70
    yield from app.fetch()
    yield from app.end(is_commit=False)
    yield from app.run(3)


def aborts_then_reads_again_under_load() -> History:
    """An application aborts, and its next Fetch begins at the aborted inputs.

    Some records of the next transaction are not decoded, as under load.
    """
    app = yield from started()
    yield from app.run(2)
    first = app.offset
    yield from app.transaction(is_commit=False)
    for each in app.transaction(4):
        if isinstance(each, s.SeenRecords):
            each = replace(each, keys=())
        elif isinstance(each, s.SeenProduce) and each.batches[0].records[0][0] != app.key(
            first + 3
        ):
            each = replace(each, batches=tuple(replace(b, records=()) for b in each.batches))
        yield each


def seeks_back_under_load_then_aborts() -> History:
    """An application seeks back and fetches its inputs again before it aborts the transaction.

    The outputs of these inputs are not decoded, as under load.
    """
    app = yield from started()
    yield from app.run(2)
    yield from app.fetch()
    for offset in range(app.offset, app.offset + 3):
        yield app.produce(offset)
    yield from app.fetch(4)
    yield from app.end(is_commit=False)
    for number in range(3):
        each = app.produce(app.offset + number)
        yield replace(each, batches=tuple(replace(b, records=()) for b in each.batches))
    yield app.produce(app.offset + 3)
    yield app.send_offsets(app.offset + 4)
    yield from app.end()


def goes_on_in_one_partition(*, with_offsets: bool) -> History:
    """An application aborts, seeks back, and continues with inputs of another partition.

    The Fetch of the aborted inputs is sent later, because another Fetch is in flight.
    """
    app = yield from started()
    other = replace(app, partition=1, offset=40)
    yield from app.run(2)
    yield from other.run(2)
    yield from other.fetch()
    yield from app.transaction(is_commit=False, with_offsets=with_offsets)
    other.at_s = app.at_s
    for offset in range(other.offset, other.offset + 3):
        yield other.produce(offset)
    yield other.send_offsets(other.offset + 3)
    yield from other.end()
    app.at_s = other.at_s
    yield from app.run(2)


def aborts_and_goes_on_in_one_partition() -> History:
    yield from goes_on_in_one_partition(with_offsets=True)


def aborts_early_and_goes_on_in_one_partition() -> History:
    yield from goes_on_in_one_partition(with_offsets=False)


def another_broker_brings_more(**fields: Any) -> History:
    """An application aborts while a Fetch is in flight, and continues with another partition.

    The aborted transaction has the offsets of both partitions.
    """
    app = yield from started(**fields)
    other = replace(app, partition=1, offset=40)
    yield from app.run(2)
    yield from other.run(2)
    yield from app.fetch()
    yield s.SeenFetch(**app.at(app.reader), positions=(((INPUT, 0), app.offset + 3),))
    for offset in range(app.offset, app.offset + 3):
        yield app.produce(offset)
    yield app.send_offsets(app.offset + 3)
    yield other.send_offsets(other.offset)
    yield from app.end(is_commit=False)
    other.at_s = app.at_s
    yield from other.run(1)
    app.at_s = other.at_s
    yield from app.run(2)


def aborts_while_another_broker_brings_more() -> History:
    yield from another_broker_brings_more()


def aborts_other_keys_while_another_broker_brings_more() -> History:
    yield from another_broker_brings_more(output_key=lambda key: key + 1_000_000_000)


def aborts_what_came_in_a_rush() -> History:
    """An application aborts inputs whose keys were not decoded, as under load.

    The keys repeat, and the keys of earlier records were decoded.
    """
    app = yield from started()
    other = replace(app, partition=1, offset=40)
    yield from app.run(2)
    yield from other.run(2)
    app.output_key = lambda key: key - 3
    for each in app.transaction(is_commit=False):
        yield replace(each, keys=()) if isinstance(each, s.SeenRecords) else each
    other.at_s = app.at_s
    yield from other.fetch()
    yield other.produce(other.offset)
    yield app.send_offsets(app.offset)
    yield other.send_offsets(other.offset + 3)
    yield from other.end()
    other.offset += 3
    app.at_s = other.at_s
    yield from app.run(2)


def aborts_then_rebalances() -> History:
    app = yield from started()
    yield from app.run(2)
    yield from app.transaction(is_commit=False)
    yield from app.join()
    yield from app.fetch(offset=90)
    app.offset = 90
    yield from app.run(2)


def ids_by_input_partition_before_kip_447() -> History:
    """Two members use a transactional id for each input partition, so InitProducerId fences.

    They need neither the generation nor require_stable.
    """
    one = Application(name="copy-orders-0", is_fenced=False, is_stable=False, version=1)
    two = replace(
        one, instance="instance-2", name="copy-orders-1", partition=1,
        connections=(next(IDS), next(IDS)),
    )  # fmt: skip
    for app in (one, two):
        yield from app.start()
        yield from app.run(5)
    for _ in range(4):  # the partition moves to the other member and back
        two.name, two.partition, two.offset = one.name, 0, one.offset
        two.at_s = one.at_s = max(one.at_s, two.at_s)
        yield one.sign()
        yield two.init()
        yield from two.join()
        yield from two.run(3)
        yield from one.join()
        one.offset, one.at_s = two.offset, two.at_s
        yield two.sign()
        yield one.init()
        yield from one.run(3)


def killed_and_restarted() -> History:
    offset = 0
    for life in range(6):
        app = yield from started(at_s=100.0 + life * 20, offset=offset)
        yield from app.run(4)
        yield from app.fetch()
        yield app.produce(app.offset)  # the transaction is open when the process dies
        yield from app.stop()
        offset = app.offset


def random_ids_with_group_metadata() -> History:
    """An application has new transactional ids at each start, as Kafka Streams does.

    Former instances are fenced by the group's generation.
    """
    offset = 0
    for life in range(4):
        name = f"billing-{UUID[:-1]}{life}-1"
        app = yield from started(name=name, at_s=100.0 + life * 20, offset=offset)
        yield from app.run(4)
        yield from app.stop()
        offset = app.offset


def two_threads_two_ids() -> History:
    one, two = Application(name="a-1"), Application(name="a-2", partition=1)
    for app in (one, two):
        yield from app.start()
    for _ in range(5):
        two.at_s = one.at_s
        yield from one.transaction()
        yield from two.transaction()


def zombie_that_wakes_once() -> History:
    """A paused instance learns from its first request that another has initialized its id."""
    one = yield from started(name="billing")
    yield from one.run(3)
    yield from one.fetch()
    yield one.produce(one.offset)
    two = replace(one, instance="instance-2", connections=(next(IDS), next(IDS)))
    two.at_s += 12
    yield from two.start()
    yield from two.run(5)
    one.at_s = two.at_s
    yield one.send_offsets(one.offset + 3)
    yield from one.end(is_commit=False)


def zombies_that_wake_again_and_again() -> History:
    """Again and again an instance is paused, and another one initializes its transactional id."""
    one = Application(name="billing")
    yield from one.start()
    for number in range(3):
        yield from one.run(3)
        yield from one.fetch()
        yield one.produce(one.offset)
        two = replace(one, instance=f"stand-in-{number}", connections=(next(IDS), next(IDS)))
        two.at_s += 1
        yield from two.start()
        yield from two.run(5)
        one.at_s = max(two.at_s, one.at_s + 6)
        yield one.sign("TxnOffsetCommit")
        yield one.send_offsets(one.offset + 3)
        yield from one.end(is_commit=False)
        one = replace(two, at_s=one.at_s)


def paused_in_its_transactions() -> History:
    app = yield from started(timeout_ms=10_000)
    for _ in range(4):
        yield from app.run(2)
        yield from app.fetch()
        yield app.produce(app.offset)
        app.at_s += 15  # SIGSTOP
        yield app.sign()
        yield from app.end(is_commit=False)
        yield from app.join()


def commits_now_and_then() -> History:
    """An application commits offsets every few hundred records, at unequal intervals.

    It writes to a table in which repeated rows do no harm.
    """
    for life in range(3):
        begun_s = 100.0 + 30 * life
        app = yield from started(name="", at_s=begun_s, step_s=0.001, offset=30 * life)
        for after_s in (2.3, 5.9, 9.1, 13.4, 16.2, 20.3):
            yield from app.copy(begun_s + after_s)
        yield from app.stop()


def commits_what_came_in_a_rush() -> History:
    """An application commits after its output, and its outputs have only three keys.

    Either the inputs or the outputs of a cycle are decoded, never both.
    """
    app = yield from started(name="", step_s=0.001, output_key=lambda key: key % 3)
    for after_s, is_input_known in ((2.3, True), (5.9, False), (9.1, True), (13.4, False)):
        for each in app.copy(100.0 + after_s):
            if isinstance(each, s.SeenRecords):
                keys = tuple((offset, key % 3) for offset, key in each.keys)
                each = replace(each, keys=keys if is_input_known else ())
            elif isinstance(each, s.SeenProduce) and is_input_known:
                each = replace(each, batches=tuple(replace(b, records=()) for b in each.batches))
            yield each


def commits_when_it_is_revoked() -> History:
    """An application commits at each rebalance, and some commits are 5 s apart by chance.

    A rebalance is LeaveGroup and JoinGroup here.
    """
    chance = random.Random(3)
    app = yield from started(name="", step_s=0.001)
    for _ in range(60):
        yield from app.copy(app.at_s + chance.choice((2.3, 3.4, 5.0, 7.7)))
        yield app.sign("LeaveGroup")
        yield from app.join()


def upserting_sink() -> History:
    """An application writes to a database, and commits its offsets itself at equal intervals."""
    app = Application(name="", producer_id=-1)
    for connection in app.connections:
        yield s.SeenOpened(**app.at(connection))
    yield from app.join()
    for _ in range(30):
        yield from app.fetch()
        app.offset += 3
        app.at_s += 1
        yield app.commit(app.offset)
    yield s.SeenVerdict(**app.at(0), is_sink=True)


def input_without_transactions_read_uncommitted() -> History:
    app = yield from started()
    for _ in range(5):
        yield from (
            replace(one, is_transactional=False, is_read_committed=False)
            if isinstance(one, s.SeenRecords)
            else one
            for one in app.transaction()
        )


def lost_answers_of_an_idempotent_producer() -> History:
    """A producer without an answer repeats its records with the same producer id."""
    app = yield from started()
    for offset in range(5):
        yield app.produce(offset, name="", topic="audit")
        yield app.produced(is_known=False)
        yield app.produce(offset, name="", topic="audit")
        yield app.produced()


def restarted_with_a_plain_producer() -> History:
    """A restarted process writes the unanswered records of its dead predecessor again."""
    for producer_id in (7, 8, 9):
        app = yield from started(producer_id=producer_id, name="", at_s=100.0 * producer_id)
        yield app.produce(1)
        yield from app.stop()


def assigned_partitions_without_a_group() -> History:
    app = Application(is_fenced=False, is_stable=False)
    yield app.init()
    yield from app.run(10)


def v1_on_brokers_with_a_fence() -> History:
    app = Application(version=3)
    yield s.SeenCluster(**app.at(0), has_connection_fence=True)
    yield s.SeenTopic(**app.at(0), topic=OUTPUT, min_insync_replicas=2, replication_factor=3)
    yield from app.start()
    yield from app.run(10)


def tool_that_looks_at_the_lag() -> History:
    yield from calm()
    yield s.SeenOffsetFetch(at_s=300, instance="instance-1", group="others", is_stable=False)
    yield s.SeenOffsetFetch(at_s=301, instance="tool", group=GROUP, is_stable=False)


def state_that_is_rebuilt() -> History:
    app = yield from started(offset=50)
    yield s.SeenFetch(**app.at(app.reader), positions=((("billing-state", 0), 0),))
    yield from app.run(5)
    yield s.SeenVerdict(**app.at(0), wrong_finals=3)


def state_that_is_rebuilt_before_the_group_is_joined() -> History:
    app = Application(offset=50)
    for connection in app.connections:
        yield s.SeenOpened(**app.at(connection))
    yield s.SeenFetch(**app.at(app.reader), positions=((("billing-state", 0), 0),))
    yield app.init()
    yield from app.join()
    yield from app.run(5)
    yield s.SeenVerdict(**app.at(0), wrong_finals=3)


def commits_each_batch_after_a_slow_start() -> History:
    """An application gets its first batch about 5 s after each start, and commits it at once."""
    for life in range(5):
        app = yield from started(name="", at_s=100.0 + 20 * life, step_s=0.01, offset=9 * life)
        app.at_s += 4.9
        yield from app.copy(app.at_s + 0.1)
        app.at_s += 3
        yield from app.stop()


def works_on_while_its_coordinator_is_gone() -> History:
    """An application executes short transactions for longer than a session, without a heartbeat."""
    app = yield from started()
    for _ in range(60):
        for each in app.transaction():
            yield app.sign("Produce")
            yield each
        app.at_s += 1


def waits_for_another_leader() -> History:
    """A broker dies in a transaction, and a leader is elected after the transaction timeout."""
    app = yield from started(timeout_ms=3_000)
    for _ in range(3):
        yield from app.fetch()
        yield app.produce(app.offset)
        yield s.SeenClosed(**app.at(app.writer))
        for _ in range(10):
            app.at_s += 0.5
            yield app.sign("Metadata")
        yield from app.end()
        app.offset += 3


def filters_most_of_its_input() -> History:
    """An application writes no output for most inputs, and commits their offsets."""
    app = yield from started()
    for cycle in range(40):
        yield from app.fetch()
        if cycle % 10 == 0:
            yield app.produce(app.offset)
        yield app.send_offsets(app.offset + 3)
        yield from app.end()
        app.offset += 3


def begins_each_batch_in_a_new_producer() -> History:
    """A sink has a new transactional id and connection for each batch, as Spark's has.

    Its positions are not in the transactions. Only its reader stays connected.
    """
    app = yield from started(name="sink")
    yield s.SeenClosed(**app.at(app.writer))
    for batch in range(4):
        app.connections, app.name = (app.reader, next(IDS)), f"sink.{UUID[:-1]}{batch}"
        yield s.SeenOpened(**app.at(app.writer))
        yield app.init()
        yield from app.transaction(with_offsets=False)
        yield s.SeenClosed(**app.at(app.writer))


RIGHT = (
    begins_each_batch_in_a_new_producer,
    batch_after_an_abort_is_refused, reads_its_position_in_a_topic_after_an_unanswered_commit,
    reads_its_empty_topic_of_positions_again_after_an_unanswered_commit,
    keeps_reading_its_topic_of_positions_after_an_unanswered_commit,
    reads_its_positions_with_a_client_that_commits_by_a_timer,
    outputs_under_load_that_the_cluster_loses,
    outputs_of_a_large_transaction_that_the_cluster_loses,
    outputs_with_old_keys_that_the_cluster_loses,
    repartitioned_outputs_that_the_cluster_loses, filtered_outputs_that_the_cluster_loses,
    state_that_is_rebuilt_from_inputs_whose_outputs_the_cluster_loses,
    rekeyed_outputs_that_the_cluster_loses, outputs_of_an_unanswered_commit_that_the_cluster_loses,
    outputs_that_are_lost_after_a_late_refusal,
    calm, hears_that_its_offsets_are_refused, zombie_is_refused_while_its_successor_commits,
    aborts_then_seeks_back, aborts_then_tries_again_from_memory, aborts_then_rebalances,
    aborts_then_reads_again_under_load, seeks_back_under_load_then_aborts,
    aborts_and_goes_on_in_one_partition, aborts_early_and_goes_on_in_one_partition,
    aborts_while_another_broker_brings_more, aborts_other_keys_while_another_broker_brings_more,
    aborts_what_came_in_a_rush, aborts_then_tries_again_with_other_values,
    rebalances_then_aborts,
    ids_by_input_partition_before_kip_447, killed_and_restarted, random_ids_with_group_metadata,
    two_threads_two_ids, zombie_that_wakes_once, zombies_that_wake_again_and_again,
    paused_in_its_transactions, commits_now_and_then, commits_when_it_is_revoked, upserting_sink,
    commits_what_came_in_a_rush,
    input_without_transactions_read_uncommitted, lost_answers_of_an_idempotent_producer,
    restarted_with_a_plain_producer, assigned_partitions_without_a_group,
    offsets_that_are_refused_after_an_abort,
    offsets_that_are_refused_after_those_of_the_next_transaction,
    v1_on_brokers_with_a_fence, tool_that_looks_at_the_lag, state_that_is_rebuilt,
    state_that_is_rebuilt_before_the_group_is_joined,
    filters_most_of_its_input, works_on_while_its_coordinator_is_gone,
    commits_each_batch_after_a_slow_start,
    waits_for_another_leader,
)  # fmt: skip


@pytest.mark.parametrize("history", RIGHT, ids=lambda each: each.__name__)
def test_diagnosis_of_correct_applications_gives_no_finding(history) -> None:
    diagnosis = Diagnosis(is_aggregate=True)
    count = 0
    for seen in history():
        count += 1
        diagnosis.see(seen)
    assert [line for found in diagnosis.findings for line in found.lines()] == []
    assert count > 5
