"""The authorizer that a broker is configured with."""

from ...coordinator.acls.authorizer import AclAuthorizer
from ...coordinator.metadata.cluster_state import ClusterState
from ..config.authorizer_keys import principals_of
from ..config.broker_config import BrokerConfig


def authorizer_of(config: BrokerConfig, state: ClusterState) -> AclAuthorizer | None:
    """Return what decides by the ACLs of the metadata; None where nothing is restricted."""
    if not config.authorizer_class_name:
        return None
    return AclAuthorizer(
        state,
        super_users=principals_of(config.super_users),
        allows_everyone=config.allow_everyone_if_no_acl_found,
    )
