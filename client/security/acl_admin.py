"""Administration of access control lists (KIP-140), with list, create and delete.

Errors are raised as in `admin`. Numbers and words are those of `wire.acls`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...wire.acls import WILDCARD, AclOperation, AclPermission, PatternType, ResourceType
from ..cluster_view import ClusterView
from ..coordinator_lookup import raise_error_of

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An ACL, which allows or denies a principal an operation on a resource, from a host."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = WILDCARD


@dataclass(frozen=True, slots=True)
class AclQuery:
    """A filter for ACLs. A field of None or ANY matches all values."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The filter as fields of a DescribeAcls or DeleteAcls request."""
        return {
            "resource_type_filter": self.resource_type,
            "resource_name_filter": self.name,
            "pattern_type_filter": self.pattern_type,
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": self.operation,
            "permission_type": self.permission,
        }


class AclAdmin:
    """An administration client for ACLs, which asks any broker."""

    def __init__(self, view: ClusterView, *, timeout_ms: int) -> None:
        self._view, self._timeout_ms = view, timeout_ms

    async def list(self, query: AclQuery | None = None) -> "list[Acl]":
        """List the ACLs that match `query`, or all ACLs, in order."""
        answer = await self._call(DESCRIBE_ACLS, (query or AclQuery()).fields)
        raise_error_of(answer, operation="Describe")
        return sorted(_acl(resource, acl) for resource in answer.resources for acl in resource.acls)

    async def create(self, acls: "Iterable[Acl]") -> None:
        """Create ACLs. An ACL that exists already is left as it is."""
        creations = [
            {
                "resource_type": acl.resource_type,
                "resource_name": acl.name,
                "resource_pattern_type": acl.pattern_type,
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            for acl in acls
        ]
        answer = await self._call(CREATE_ACLS, {"creations": creations})
        for result in answer.results:
            raise_error_of(result, operation="Alter")

    async def delete(self, queries: "Iterable[AclQuery]") -> "list[Acl]":
        """Delete the ACLs that match one of the queries, and return them in order."""
        request = {"filters": [query.fields for query in queries]}
        answer = await self._call(DELETE_ACLS, request)
        gone: set[Acl] = set()
        for result in answer.filter_results:
            raise_error_of(result, operation="Alter")
            for acl in result.matching_acls:
                raise_error_of(acl, operation="Alter")
                gone.add(_acl(acl, acl))
        return sorted(gone)

    async def _call(self, api_key: int, request: dict[str, Any]) -> Any:
        async def attempt() -> Any:
            connection = await self._view.any_broker()
            return await connection.call(api_key, request)

        return await self._view.retrying(attempt, timeout_ms=self._timeout_ms)


def _acl(resource: Any, acl: Any) -> Acl:
    return Acl(
        ResourceType(resource.resource_type),
        PatternType(resource.pattern_type),
        resource.resource_name,
        acl.principal,
        AclOperation(acl.operation),
        AclPermission(acl.permission_type),
        acl.host,
    )
