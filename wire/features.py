"""The features of a cluster with their levels (KIP-584), and the rules of their updates.

With transaction.version 2 producers raise their epoch with each transaction and add partitions by
producing (KIP-890). With group.version 1 consumer groups of the newer protocol exist (KIP-848).
kraft.version 1 is accepted as by Kafka (KIP-853), but changes only an error text, because the
voters of a cluster never change. The other features have only one level. Elections use eligible
leader replicas (KIP-966), and tools read the version of a cluster from metadata.version (33 is
4.4-IV2). This file is pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

GROUP_VERSION, TRANSACTION_VERSION = "group.version", "transaction.version"
KRAFT_VERSION = "kraft.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3  # Kafka's types of updates


class Feature(NamedTuple):
    """The levels of a feature, and the level of a new cluster.

    If `is_fixed`, the default is the only level. A level can be lowered only if `can_fall`.
    """

    lowest: int
    highest: int
    default: int
    is_fixed: bool = False
    can_fall: bool = True


FEATURES: Mapping[str, Feature] = {
    "eligible.leader.replicas.version": Feature(0, 1, 1, is_fixed=True),
    GROUP_VERSION: Feature(0, 1, 1),
    KRAFT_VERSION: Feature(0, 1, 0, can_fall=False),
    "metadata.version": Feature(7, 33, 33, is_fixed=True),
    TRANSACTION_VERSION: Feature(0, 2, 2),
}


def why_not(name: str, level: int, current: int, upgrade_type: int, controller_id: int) -> str:
    """Return the reason to refuse an update of a feature's level, or an empty text.

    The reason has Kafka's words, and the checks are in Kafka's order. The last check, for features
    with only one level, is not Kafka's.
    """
    controller = f"Local controller {controller_id}"
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    feature = FEATURES.get(name)
    if feature is None:
        return f"{controller} does not support this feature."
    if not feature.lowest <= level <= feature.highest:
        return f"{controller} only supports versions {feature.lowest}-{feature.highest}"
    if level < current and upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if level > current and upgrade_type != UPGRADE:
        return "Can't downgrade to a newer version."
    if level < current and not feature.can_fall:
        return "Can't downgrade the version of this feature."
    if level != current and feature.is_fixed:
        return f"Level {current} holds for the life of this cluster."
    return ""
