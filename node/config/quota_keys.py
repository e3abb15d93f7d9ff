"""The keys of client quotas (AlterClientQuotas) and of throttled replication (KIP-73)."""

from dataclasses import dataclass

from .keys import INT, LONG, BrokerKey, at_least, setting
from .listener_keys import ListenerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings(ListenerSettings):
    """The typed values of the quota keys."""

    quota_window_num: int = setting(
        "quota.window.num",
        INT,
        "11",
        "The number of samples from which a client's rate is computed.",
        at_least(2),
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", INT, "1", "The time of each sample.", at_least(1)
    )
    replication_quota_window_num: int = setting(
        "replication.quota.window.num",
        INT,
        "11",
        "The number of samples from which the rate of throttled replication is computed.",
        at_least(2),
    )
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds",
        INT,
        "1",
        "The time of each sample for throttled replication.",
        at_least(1),
    )


LEADER_RATE, FOLLOWER_RATE = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
)
UNLIMITED = 2**63 - 1
THROTTLE_KEYS = {
    name: BrokerKey(
        name=name,
        type=LONG,
        default=str(UNLIMITED),
        doc=f"The maximum bytes per second that a broker {do} for throttled replicas.",
        check=at_least(0),
        is_dynamic=True,
        shown_unset="hidden",
    )
    for name, do in ((LEADER_RATE, "sends as leader"), (FOLLOWER_RATE, "fetches as follower"))
}
