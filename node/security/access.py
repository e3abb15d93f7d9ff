"""The rights of one connection, looked up in the ACLs once and cached until the ACLs change."""

import asyncio
import logging
import shlex

from ...coordinator.acls.authorizer import AclAuthorizer
from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.security.principal import Principal
from ...runtime.rate_limited_log import LimitedLog
from ...runtime.steps import Steps
from ...wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from ...wire.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from ..config.authorizer_keys import principals_of
from ..config.broker_config import BrokerConfig

REMEMBERED_MAX = 4_096  # decisions of one connection
# Letters; longer names are not cached, to limit the memory of a connection.
REMEMBERED_NAME_MAX = 256
_FAILURES: dict[int, type[KafkaError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}
_OPTIONS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
}


class Access:
    """The rights of one principal that connects from one host."""

    __slots__ = ("_authorizer", "_generation", "_known", "_log", "_name", "host", "principal")

    def __init__(
        self, authorizer: AclAuthorizer, principal: Principal, host: str, log: LimitedLog
    ) -> None:
        self.principal, self.host = principal, host
        self._authorizer, self._name, self._log = authorizer, str(principal), log
        self._generation: object = None
        self._known: dict[tuple[int, int, str], bool] = {}

    def allows(
        self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        """Return whether the current ACLs allow the operation on the resource."""
        generation = self._authorizer.acls.generation
        if generation is not self._generation or len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
            self._generation = generation
        key = (operation, resource_type, name)
        is_allowed = self._known.get(key)
        if is_allowed is None:
            is_allowed = self._authorizer.allows(
                self._name, self.host, operation, resource_type, name
            )
            if len(name) <= REMEMBERED_NAME_MAX:
                self._known[key] = is_allowed
        return is_allowed

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> Steps[bool]:
        """Return whether the operation is allowed on any resource of the type (KIP-679)."""
        return self._authorizer.allows_any(self._name, self.host, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations on a resource that the current ACLs allow, as bits (KIP-430)."""
        return self._authorizer.operations(self._name, self.host, resource_type, name)

    def require(
        self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Raise Kafka's error if the operation is not allowed."""
        if not self.allows(operation, resource_type, name):
            raise self.refusal(operation, resource_type, name)

    def refusal(
        self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> KafkaError:
        """Return the error of a denied operation, and log the ACL that would allow it."""
        option = _OPTIONS.get(resource_type)
        resource = "--cluster" if option is None else f"{option} {shlex.quote(name)}"
        self._log.log(
            logging.INFO,
            self._name,
            asyncio.get_running_loop().time(),
            "refused %s from %s: %s on %s %s (oncelog acl add --allow %s --operation %s %s)",
            self._name,
            self.host,
            operation.word,
            resource_type.word,
            name,
            shlex.quote(self._name),
            operation.word,
            resource,
        )
        return _FAILURES.get(resource_type, ClusterAuthorizationFailed)()


def authorizer_of(config: BrokerConfig, state: ClusterState) -> AclAuthorizer | None:
    """Return the authorizer with the ACLs of the metadata, or None without authorization."""
    if not config.authorizer_class_name:
        return None
    return AclAuthorizer(
        state,
        super_users=principals_of(config.super_users),
        allows_everyone=config.allow_everyone_if_no_acl_found,
    )
