"""The session timeouts of group.protocol=consumer (KIP-848), which brokers set, not clients.

In our own cluster the session timeout is as short as the one that the proxy sets in JoinGroup. On
any other cluster it is read from the groups' configuration, and pauses and waits are as long as it
needs.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...client.admin import BROKER_RESOURCE
from ...wire.errors import KafkaError
from .observed import Observed
from .plan import HEARTBEAT, Timeouts

if TYPE_CHECKING:
    from ...client.blocking import BlockingAdmin

GROUP_RESOURCE = 32
OF_BROKER, OF_GROUP = "group.consumer.session.timeout.ms", "consumer.session.timeout.ms"
SHORT_SESSIONS = MappingProxyType(
    {
        "group.consumer.min.session.timeout.ms": 6_000,
        OF_BROKER: 6_000,
        "group.consumer.min.heartbeat.interval.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": 1_000,
    }
)
DEFAULT_MS = 45_000


def with_broker_sessions(
    timeouts: Timeouts, admin: "BlockingAdmin", observed: Observed, say: Callable[[str], None]
) -> Timeouts:
    """Return the timeouts with the brokers' session timeout for the groups, if it is longer.

    They are returned unchanged if no client of the application uses group.protocol=consumer.
    """
    if not observed.apis & HEARTBEAT:
        return timeouts
    found_s = session_s(admin, observed.groups)
    if found_s <= timeouts.session_s:
        return timeouts
    say(
        f"the brokers set a session timeout of {found_s:g} s, so this run allows longer pauses "
        "and waits"
    )
    return replace(timeouts, session_s=found_s)


def session_s(admin: "BlockingAdmin", groups: Iterable[str]) -> float:
    """Return the longest session timeout of these groups.

    The broker's own counts too if a group's is unknown, or if there are no groups.
    """
    asked = [(GROUP_RESOURCE, name, OF_GROUP) for name in groups]
    found = [_value_ms(admin, *each) for each in asked]
    known = [each for each in found if each is not None]
    if len(known) < len(found) or not found:
        broker = str(admin.describe_cluster().brokers[0].node_id)
        known.append(_value_ms(admin, BROKER_RESOURCE, broker, OF_BROKER) or DEFAULT_MS)
    return max(known) / 1000


def _value_ms(admin: "BlockingAdmin", kind: int, name: str, key: str) -> int | None:
    with suppress(KafkaError):  # an older broker, or a login without the right to ask
        for each in admin.describe_configs(name, kind):
            if each.name == key and each.value:
                return int(each.value)
    return None
