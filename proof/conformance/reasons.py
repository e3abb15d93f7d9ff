"""The reasons why a cluster of ours differs from Apache Kafka 4.4, of which the first match counts.

docs/protocol.md is generated from the reasons. A row without a reason fails `oncelog conformance`,
so an unintended gap is noticed.
"""

from .compare import Reason
from .survey import Survey

NO_SHARE = "share groups are not served"
NO_STREAMS = "streams groups are not served"
FIXED_VOTERS = "decisions are kept by Raft groups whose voters never change; there is no KRaft"

_APIS = {
    NO_SHARE: ("Share*", "*Share*"),
    NO_STREAMS: ("Streams*",),
}
_FEATURES = {
    NO_SHARE: ("share.version",),
    NO_STREAMS: ("streams.version",),
}
_BROKER_KEYS = {
    NO_SHARE: ("group.share.*", "share.*", "errors.deadletterqueue.*"),
    NO_STREAMS: ("group.streams.*",),
    FIXED_VOTERS: (
        "controller.*",
        "metadata.log.dir",
        "process.roles",
        "broker.id",
    ),
}
OWN_KEYS = "oncelog."  # only brokers of ours have such configuration keys


def reasons_for(survey: Survey) -> tuple[Reason, ...]:
    """Return the known reasons for differences, if the survey is of an oncelog cluster, else ()."""
    keys = survey.configs.get("broker", frozenset())
    return REASONS if any(key.startswith(OWN_KEYS) for key in keys) else ()


REASONS: tuple[Reason, ...] = (
    *(Reason("api", name, why) for why, names in _APIS.items() for name in names),
    *(Reason("feature", name, why) for why, names in _FEATURES.items() for name in names),
    *(
        Reason("config", f"broker {name}", why)
        for why, names in _BROKER_KEYS.items()
        for name in names
    ),
    Reason("versions", "SaslHandshake", "after version 0 tokens are no requests; clients take 1"),
)
