"""Test the topics, groups and transactional ids that a request names, in every version."""

import pytest

from oncelog.deploy.faults.protocol_proxy.subjects import Subjects, TopicNames
from oncelog.wire.messages.apis import APIS

from .frames import KEYS, TOPIC_ID, request_of
from .samples import SAMPLES, G, T, X, sample

TOPIC, GROUP, ID = {"topics": {T}}, {"groups": {G}}, {"transactional_ids": {X}}
ABOUT = {
    "Produce": TOPIC | ID,
    "Fetch": TOPIC,
    "ListOffsets": TOPIC,
    "OffsetCommit": TOPIC | GROUP,
    "OffsetFetch": TOPIC | GROUP,
    "JoinGroup": GROUP,
    "Heartbeat": GROUP,
    "LeaveGroup": GROUP,
    "SyncGroup": GROUP,
    "CreateTopics": TOPIC,
    "DeleteTopics": TOPIC,
    "CreatePartitions": TOPIC,
    "InitProducerId": ID,
    "OffsetForLeaderEpoch": TOPIC,
    "AddPartitionsToTxn": TOPIC | ID,
    "AddOffsetsToTxn": GROUP | ID,
    "EndTxn": ID,
    "TxnOffsetCommit": TOPIC | GROUP | ID,
    "ConsumerGroupHeartbeat": GROUP,
}
VERSIONS = [
    (name, version)
    for name in ABOUT
    for version in range(APIS[KEYS[name]].oldest, APIS[KEYS[name]].newest + 1)
]


def subjects(**about: set[str]) -> Subjects:
    return Subjects(**{name: frozenset(values) for name, values in about.items()})


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_request_of_every_version_has_its_topics_groups_and_transactional_ids_as_subjects(
    name, version
):
    names = TopicNames({TOPIC_ID: T})
    assert request_of(name, version, sample(name, version), names).subjects == subjects(
        **ABOUT[name]
    )


@pytest.mark.parametrize(
    ("version", "values", "about"),
    [
        (0, {"key": G}, {"groups": {G}}),
        (2, {"key": X, "key_type": 1}, {"transactional_ids": {X}}),
        (5, {"key_type": 1, "coordinator_keys": [X, "y"]}, {"transactional_ids": {X, "y"}}),
        (6, {"key_type": 2, "coordinator_keys": ["g:id:0"]}, {}),
    ],
)
def test_find_coordinator_request_subject_is_a_group_or_a_transactional_id(version, values, about):
    assert request_of("FindCoordinator", version, values).subjects == subjects(**about)


def test_request_with_a_list_of_groups_or_transactional_ids_has_each_as_a_subject():
    assert request_of("DescribeGroups", 5, {"groups": [G]}).subjects == subjects(groups={G})
    assert request_of("DeleteGroups", 2, {"groups_names": [G]}).subjects == subjects(groups={G})
    asked = request_of("DescribeTransactions", 0, {"transactional_ids": [X]})
    assert asked.subjects == subjects(transactional_ids={X})


def test_request_with_an_unknown_topic_id_has_its_hex_form_as_subject():
    request = request_of("OffsetCommit", 10, SAMPLES["OffsetCommit"])
    assert request.subjects.topics == {f"id:{TOPIC_ID.hex()}"}


def test_topic_names_are_learned_from_metadata_answers():
    from types import SimpleNamespace as Topic

    names = TopicNames()
    names.learn(
        [Topic(name=T, topic_id=TOPIC_ID), Topic(name="old"), Topic(name=None, topic_id=b"1" * 16)]
    )
    names.learn(None)
    assert names == {TOPIC_ID: T}
