"""An ACL as a value, a filter for ACLs, and Kafka's checks of both."""

from dataclasses import dataclass

from ...wire.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ...wire.errors import InvalidRequest

TEXT_BYTES_MAX = 1_000  # the limit of a name, a principal, a host
_RESOURCE_TYPES = frozenset(ResourceType) - {ResourceType.ANY}
_PATTERN_TYPES = frozenset({PatternType.LITERAL, PatternType.PREFIXED})
_OPERATIONS = frozenset(AclOperation) - {AclOperation.ANY}
_PERMISSIONS = frozenset({AclPermission.DENY, AclPermission.ALLOW})


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """One ACL, with the enumeration values of `wire.acls` and a principal such as `User:alice`."""

    resource_type: int
    pattern_type: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int


def check_binding(binding: AclBinding) -> None:
    """Raise INVALID_REQUEST for an ACL that Kafka would refuse, or with a text that is too long."""
    for number, known, what in (
        (binding.resource_type, _RESOURCE_TYPES, "resourceType"),
        (binding.pattern_type, _PATTERN_TYPES, "patternType"),
        (binding.operation, _OPERATIONS, "operation"),
        (binding.permission, _PERMISSIONS, "permissionType"),
    ):
        if number not in known:
            raise InvalidRequest(f"Invalid {what} {number}")
    if binding.resource_type == ResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not binding.name:
        raise InvalidRequest("Invalid empty resource name")
    if ":" not in binding.principal:
        raise InvalidRequest(
            f"expected a string in format principalType:principalName but got {binding.principal}"
        )
    for text in (binding.name, binding.principal, binding.host):
        if len(text.encode()) > TEXT_BYTES_MAX:
            raise InvalidRequest(
                f"A name, principal or host of an ACL takes at most {TEXT_BYTES_MAX} bytes."
            )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs. A field that is None, or has the value ANY, matches everything."""

    resource_type: int = ResourceType.ANY
    pattern_type: int = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = AclPermission.ANY

    def check(self) -> None:
        """Raise INVALID_REQUEST for an enumeration value that Kafka does not know."""
        if self.resource_type not in frozenset(ResourceType) or self.pattern_type not in frozenset(
            PatternType
        ):
            raise InvalidRequest("Unknown patternFilter.")
        if self.operation not in frozenset(AclOperation) or self.permission not in frozenset(
            AclPermission
        ):
            raise InvalidRequest("Unknown entryFilter.")

    @property
    def only(self) -> AclBinding | None:
        """Return the only ACL that the filter can match, or None if it may match several."""
        if (
            self.name is None
            or self.principal is None
            or self.host is None
            or self.resource_type == ResourceType.ANY
            or self.pattern_type not in _PATTERN_TYPES
            or self.operation == AclOperation.ANY
            or self.permission == AclPermission.ANY
        ):
            return None
        return AclBinding(
            self.resource_type,
            self.pattern_type,
            self.name,
            self.principal,
            self.host,
            self.operation,
            self.permission,
        )

    def matches(self, binding: AclBinding) -> bool:
        """Return whether the filter matches the ACL."""
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (AclPermission.ANY, binding.permission)
            and (self.principal is None or self.principal == binding.principal)
            and (self.host is None or self.host == binding.host)
            and self._matches_name(binding)
        )

    def _matches_name(self, binding: AclBinding) -> bool:
        wanted = self.pattern_type
        if wanted not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if self.name is None:
            return True
        if wanted != PatternType.MATCH:
            return self.name == binding.name
        if binding.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(binding.name)
        return binding.name in (self.name, WILDCARD)
