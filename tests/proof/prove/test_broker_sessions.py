"""Test that a run knows the brokers' session timeouts for group.protocol=consumer."""

from types import SimpleNamespace
from typing import Any

import pytest

import oncelog
from oncelog.client import BlockingAdmin
from oncelog.proof.prove.broker_sessions import (
    DEFAULT_MS,
    GROUP_RESOURCE,
    OF_GROUP,
    session_s,
    with_broker_sessions,
)
from oncelog.proof.prove.plan import Timeouts

USES = frozenset({"ConsumerGroupHeartbeat"})


@pytest.mark.cluster
def test_session_timeout_set_by_brokers_is_the_longest_of_the_groups(
    oncelog_cluster: oncelog.Cluster,
) -> None:
    with BlockingAdmin(oncelog_cluster.bootstrap) as admin:
        admin.alter_configs("slow", {OF_GROUP: "50000"}, GROUP_RESOURCE)
        assert session_s(admin, []) == session_s(admin, ["other"]) == DEFAULT_MS / 1000
        assert session_s(admin, ["other", "slow"]) == 50.0
        told: list[str] = []
        for apis, found_s in ((frozenset(), 6.0), (USES, 50.0)):
            observed: Any = SimpleNamespace(apis=apis, groups={"slow": None})
            timeouts = with_broker_sessions(Timeouts(), admin, observed, told.append)
            assert timeouts.session_s == found_s
        (words,) = told
        assert "50 s" in words
