"""Test that an authorization error names the missing permission and how to grant it."""

import pytest

from oncelog.client.coordinator_lookup import raise_code
from oncelog.client.security.permissions import error_about
from oncelog.wire.errors import ErrorCode, KafkaError, UnknownTopicOrPartition

_E = ErrorCode


@pytest.mark.parametrize(
    ("code", "operation", "of_cluster", "said", "granted"),
    [
        (_E.TOPIC_AUTHORIZATION_FAILED, "Read", "", "Read on the topic n",
         "--operation Read --topic n"),
        (_E.GROUP_AUTHORIZATION_FAILED, "Delete", "", "Delete on the group n",
         "--operation Delete --group n"),
        (_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Write", "", "Write on the transactional id n",
         "--operation Write --transactional-id n"),
        (_E.CLUSTER_AUTHORIZATION_FAILED, "Write", "IdempotentWrite",
         "IdempotentWrite on the cluster (Write on any topic would do",
         "--operation IdempotentWrite --cluster"),
        (_E.CLUSTER_AUTHORIZATION_FAILED, "Alter", "", "Alter on the cluster",
         "--operation Alter --cluster"),
    ],
)  # fmt: skip
def test_authorization_error_names_the_missing_permission_and_the_acl_command(
    code, operation, of_cluster, said, granted
):
    problem = error_about(int(code), "n", operation, "Not authorized", of_cluster=of_cluster)
    assert problem.number == code and not problem.retriable
    assert f"no permission for {said}" in str(problem)
    assert str(problem).endswith(f"kafka-acls --add --allow-principal User:NAME {granted}")


def test_error_other_than_authorization_keeps_its_message():
    problem = error_about(int(_E.UNKNOWN_TOPIC_OR_PARTITION), "n", "Read", "There is no n")
    assert isinstance(problem, UnknownTopicOrPartition) and str(problem) == "There is no n"


def test_authorization_error_without_an_operation_names_only_the_resource():
    raise_code(0, name="n", operation="Read")
    for operation, words in (("Read", "--topic n"), ("", "No permission for the topic")):
        with pytest.raises(KafkaError, match=words):
            raise_code(int(_E.TOPIC_AUTHORIZATION_FAILED), name="n", operation=operation)
