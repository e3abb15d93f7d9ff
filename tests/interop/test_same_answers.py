"""The same requests to Apache Kafka and to us; the answers are compared field by field.

What differs is either mended or stands, with its reason, in `meant_differences`. Every served API
and version is asked; a new one without a scenario fails here.
"""

import logging

import pytest

from oncelog.node.api_table import control_plane_apis
from oncelog.node.handlers import fetch, offsets, produce
from oncelog.wire.messages.apis import API_NAMES

from . import cases_admin, cases_cluster, cases_log
from .comparison import Comparison
from .kafka_peer import is_enabled
from .meant_differences import MEANT

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.cluster,
    pytest.mark.skipif(not is_enabled(), reason="ONCELOG_KAFKA is not 1"),
]
SCENARIOS = {
    0: (
        cases_log.produce,
        cases_log.produce_batches,
        cases_log.produce_in_sequence,
        cases_log.produce_to_configured,
        cases_log.produce_in_no_transaction,
    ),
    1: (cases_log.fetch, cases_log.fetch_sessions, cases_log.fetch_as_replica),
    2: (cases_log.list_offsets,),
    3: (cases_cluster.metadata, cases_cluster.auto_creation),
    18: (cases_cluster.api_versions,),
    19: (cases_admin.create_topics,),
    20: (cases_admin.delete_topics,),
    21: (cases_log.delete_records,),
    22: (cases_cluster.init_producer_id,),
    23: (cases_log.offset_for_leader_epoch,),
    29: (cases_cluster.acls,),
    32: (cases_admin.describe_configs,),
    33: (cases_admin.alter_configs,),
    35: (cases_admin.describe_log_dirs,),
    37: (cases_admin.create_partitions,),
    43: (cases_admin.elect_leaders,),
    44: (cases_admin.incremental_alter_configs,),
    45: (cases_admin.reassignments,),
    55: (cases_admin.describe_quorum,),
    60: (cases_cluster.describe_cluster,),
    74: (cases_cluster.list_config_resources,),
    75: (cases_cluster.describe_topic_partitions,),
}
ASKED_ELSEWHERE = {30: 29, 31: 29, 46: 45}  # in the scenario of another API
SERVED = {
    api.key: api
    for api in (
        *produce.apis(),
        *fetch.apis(),
        *offsets.apis(),
        *control_plane_apis(logging.getLogger(__name__)),
    )
}
comparison = Comparison(MEANT)
runs: set[int] = set()


def _judge(api: str, version: int, kafka_cases, our_cases) -> list[str]:
    found = []
    for (case, theirs), (same_case, mine) in zip(kafka_cases, our_cases, strict=True):
        assert case == same_case
        found += [str(d) for d in comparison.compare(api, version, case, theirs, mine)]
    return found


def test_every_served_api_is_compared():
    assert SERVED.keys() == SCENARIOS.keys() | ASKED_ELSEWHERE.keys()


@pytest.mark.parametrize("key", sorted(SCENARIOS), ids=API_NAMES.get)
def test_answers_are_those_of_kafka(key, kafka, ours):
    api = SERVED[key]
    found = []
    for version in range(api.min_version, api.max_version + 1):
        for scenario in SCENARIOS[key]:
            found += _judge(
                API_NAMES[key], version, scenario(kafka, version), scenario(ours, version)
            )
    runs.add(key)
    assert not found, f"{len(found)} differences\n" + "\n".join(found)


def test_frames_that_are_no_requests(kafka, ours):
    found = _judge("frames", 0, cases_cluster.frames(kafka, 0), cases_cluster.frames(ours, 0))
    assert not found, f"{len(found)} differences\n" + "\n".join(found)


def test_every_difference_on_the_list_is_still_there():
    """Comes last; says nothing when only some of the comparisons ran in this process."""
    if runs != SCENARIOS.keys():
        pytest.skip("not all comparisons ran here")
    stale = [meant for meant in MEANT if meant not in comparison.used]
    assert not stale, "\n".join(map(str, stale))
