"""The API to update the cluster's features.

UpdateFeatures 0-2  KIP-584; v1 validates only (KIP-778), v2 has no results of single features.

The features and their levels are in `wire/features.py`.
"""

from ....coordinator.metadata.commands import FeatureUpdate, UpdateFeatures
from ....wire.acls import AclOperation
from ....wire.errors import InvalidRequest, error_for
from ....wire.features import FEATURES, SAFE_DOWNGRADE, UPGRADE
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ...listener.dispatch import Api, RequestContext, control_api
from ...security.rights import on_cluster
from ...services import BrokerServices
from ..answers import code_with_message

SHOWN_FROM = 3  # versions of ApiVersions
FROM_ZERO_FROM = 4  # clients before this version cannot read a feature whose range begins with 0
RESULTS_UNTIL = 1  # versions of UpdateFeatures
UPDATES_MAX = 100


def shown_features(broker: BrokerServices, version: int) -> "responses.ApiVersions.Response":
    """Return the features in an ApiVersions answer, in which level 0 means not finalized."""
    if version < SHOWN_FROM:
        return {}
    supported: list[responses.ApiVersions.SupportedFeatureKey] = [
        {"name": name, "min_version": feature.lowest, "max_version": feature.highest}
        for name, feature in FEATURES.items()
        if feature.lowest or version >= FROM_ZERO_FROM
    ]
    finalized: list[responses.ApiVersions.FinalizedFeatureKey] = [
        {"name": name, "min_version_level": level, "max_version_level": level}
        for name in FEATURES
        if (level := broker.state.feature_level(name))
    ]
    return {
        "supported_features": supported,
        "finalized_features_epoch": broker.state.features_epoch,
        "finalized_features": finalized,
    }


async def update_features(
    context: RequestContext, header: RequestHeader, request: "requests.UpdateFeaturesRequest"
) -> "responses.UpdateFeatures.Response":
    """Update all features or none, in every version, as Kafka does since version 2."""
    broker = context.broker
    if len(request.feature_updates) > UPDATES_MAX:
        raise InvalidRequest(f"At most {UPDATES_MAX} features are updated at once.")
    updates = {each.feature: _update(each) for each in request.feature_updates}
    if updates:
        command = UpdateFeatures(
            tuple(updates.values()),
            broker.controller_id,
            getattr(request, "validate_only", False),
        )
        timeout_ms = broker.config.request_timeout_ms
        result = await broker.controller.submit(command, timeout_ms=timeout_ms)
        if result.error:
            raise error_for(result.error, result.message)
    told = updates if header.api_version <= RESULTS_UNTIL else ()
    return {
        "error_message": None,
        "results": [{"feature": name, "error_message": "NONE"} for name in told],
    }


def _update(asked: "requests.UpdateFeaturesRequest.FeatureUpdateKey") -> FeatureUpdate:
    allowed = SAFE_DOWNGRADE if getattr(asked, "allow_downgrade", False) else UPGRADE
    upgrade_type = getattr(asked, "upgrade_type", allowed)
    return FeatureUpdate(asked.feature, asked.max_version_level, upgrade_type)


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        control_api(
            api_keys.UPDATE_FEATURES,
            (0, 2),
            update_features,
            code_with_message,
            rights=(on_cluster(AclOperation.ALTER),),
        ),
    )
