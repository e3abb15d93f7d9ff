"""The changes of feature levels. A command changes all of its features or none."""

from ....wire.errors import ErrorCode, error_for
from ....wire.features import why_not
from ..cluster_tables import ClusterTables
from ..commands import UpdateFeatures
from ..results import Result


def update_features(tables: ClusterTables, command: UpdateFeatures, index: int) -> Result:
    """Set feature levels, or answer INVALID_UPDATE_VERSION with the first error."""
    for update in command.updates:
        current = tables.feature_level(update.name)
        complaint = why_not(
            update.name, update.level, current, update.upgrade_type, command.controller_id
        )
        if complaint:
            raise error_for(
                ErrorCode.INVALID_UPDATE_VERSION,
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.level} for feature {update.name}. {complaint}",
            )
    if not command.validate_only:
        for update in command.updates:
            tables.put_feature_level(update.name, update.level, index)
    return Result()
