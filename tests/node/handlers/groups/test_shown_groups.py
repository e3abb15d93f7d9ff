"""Test that a group with a topic that the client may not describe is not described."""

from typing import Any

import pytest

from oncelog.coordinator.security.principal import Principal
from oncelog.node.handlers.groups.consumer_members import _show_groups
from oncelog.runtime.steps import MADE_A_STEP
from oncelog.wire.errors import ErrorCode

TOPICS = [f"topic-{number}" for number in range(10 * MADE_A_STEP)]


class CountedAccess:
    """Access to all topics except `hidden`, which counts its checks."""

    principal = Principal("User", "alice")

    def __init__(self, hidden: str) -> None:
        self._hidden = hidden
        self.asked = 0

    def allows(self, operation: int, resource_type: int, name: str) -> bool:
        self.asked += 1
        return name != self._hidden


def described(topics: list[str]) -> dict[str, Any]:
    assigned = {"topic_partitions": [{"topic_name": name, "partitions": [0]} for name in topics]}
    member = {"subscribed_topic_names": [], "assignment": assigned, "target_assignment": assigned}
    return {"group_id": "g", "error_code": 0, "members": [member]}


@pytest.mark.parametrize(
    ("hidden", "error"),
    [("", 0), (TOPICS[-1], ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
)
def test_consumer_group_description_checks_the_topics_of_its_members_in_steps(
    hidden: str, error: int
) -> None:
    access: Any = CountedAccess(hidden)
    steps = _show_groups(access, None, None, {"groups": [described(TOPICS)]})
    most = 0
    try:
        while True:
            next(steps)
            most, access.asked = max(most, access.asked), 0
    except StopIteration as end:
        (group,) = end.value["groups"]
    assert 0 < most <= MADE_A_STEP
    assert group["error_code"] == error
    assert bool(group.get("members")) == (not error)
