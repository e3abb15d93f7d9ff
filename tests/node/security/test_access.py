"""Test that the cached ACL decisions of a connection take little memory."""

import logging
import tracemalloc

from oncelog.coordinator.acls.acl_table import AclTable
from oncelog.coordinator.acls.authorizer import AclAuthorizer
from oncelog.coordinator.security.principal import Principal
from oncelog.node.security.access import REMEMBERED_MAX, Access
from oncelog.runtime.rate_limited_log import LimitedLog
from oncelog.wire.acls import AclOperation, ResourceType


class Tables:
    def __init__(self) -> None:
        self.acls = AclTable()


def test_acl_check_of_names_of_any_length_costs_a_connection_little_memory() -> None:
    log = LimitedLog(logging.getLogger("oncelog.test"))
    access = Access(AclAuthorizer(Tables()), Principal("User", "alice"), "127.0.0.1", log)
    tracemalloc.start()
    try:
        for number in range(REMEMBERED_MAX):
            name = f"{number}".ljust(10_000, "x")
            assert not access.allows(AclOperation.READ, ResourceType.TOPIC, name)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 2 * 1024 * 1024
