"""The features of a cluster with their levels (KIP-584), and the rules of their updates.

With transaction.version 2 producers raise their epoch with each transaction and add partitions by
producing (KIP-890). With group.version 1 consumer groups of the newer protocol exist (KIP-848). The
other features have only one level. Elections use eligible leader replicas (KIP-966), and tools read
the version of a cluster from metadata.version (33 is 4.4-IV2). This file is pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

GROUP_VERSION, TRANSACTION_VERSION = "group.version", "transaction.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3  # Kafka's types of updates


class Feature(NamedTuple):
    """The levels of a feature, of which the highest is the default.

    If `is_fixed`, the highest level is the only level.
    """

    lowest: int
    highest: int
    is_fixed: bool = False


FEATURES: Mapping[str, Feature] = {
    "eligible.leader.replicas.version": Feature(0, 1, is_fixed=True),
    GROUP_VERSION: Feature(0, 1),
    "metadata.version": Feature(7, 33, is_fixed=True),
    TRANSACTION_VERSION: Feature(0, 2),
}


def why_not(name: str, level: int, current: int, upgrade_type: int, controller_id: int) -> str:
    """Return the error of an update, in Kafka's order and words, or an empty text."""
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
    if level != current and feature.is_fixed:
        return f"Level {current} holds for the life of this cluster."
    return ""
