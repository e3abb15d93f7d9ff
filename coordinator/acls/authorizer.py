"""The authorization rules of Kafka's StandardAuthorizer, on the ACLs of the metadata."""

from typing import Protocol

from ...runtime.steps import Steps
from ...wire.acls import ANY_USER, SUPPORTED_OPERATIONS, ResourceType, operation_bits
from .acl_table import AclTable

_NO_RESOURCE = "hardcode"  # the resource name that Kafka uses for questions about a type in general


class HoldsAcls(Protocol):
    """The owner of the ACLs, which replaces its table when a snapshot is installed."""

    @property
    def acls(self) -> AclTable:
        """The current ACLs."""
        ...


class AclAuthorizer:
    """An authorizer that decides by the ACLs that `tables` has at the time of each request.

    super_users: principals that no ACL restricts. allows_everyone: a resource without ACLs is open
    to everyone (`allow.everyone.if.no.acl.found`).
    """

    def __init__(
        self,
        tables: HoldsAcls,
        *,
        super_users: frozenset[str] = frozenset(),
        allows_everyone: bool = False,
    ) -> None:
        self._tables = tables
        self._super_users = super_users
        self._allows_everyone = allows_everyone

    @property
    def acls(self) -> AclTable:
        return self._tables.acls

    def allows(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """Return whether the principal may perform the operation on the resource from this host."""
        if principal in self._super_users:
            return True
        decided = self.acls.decide((principal, ANY_USER), host, operation, resource_type, name)
        if decided is not None:
            return decided
        return self._allows_everyone and not self.acls.has_any_for(resource_type, name)

    def allows_any(
        self, principal: str, host: str, operation: int, resource_type: int
    ) -> Steps[bool]:
        """Return whether the principal may perform the operation on any resource (KIP-679)."""
        if self.allows(principal, host, operation, resource_type, _NO_RESOURCE):
            return True
        principals = (principal, ANY_USER)
        return (yield from self.acls.allows_any(principals, host, operation, resource_type))

    def operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """Return the allowed operations of the principal on the resource, as bits (KIP-430)."""
        return operation_bits(
            [
                operation
                for operation in SUPPORTED_OPERATIONS[resource_type]
                if self.allows(principal, host, operation, resource_type, name)
            ]
        )
