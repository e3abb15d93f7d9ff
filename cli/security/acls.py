"""Commands about access control lists.

Principals, operations and pattern types are written as for kafka-acls. Options are shorter.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.terminal import say, show
from ...wire.acls import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from ..common import DEFAULT_CLUSTER, QUERY, ClusterOptions, Query, add_family, headings

if TYPE_CHECKING:
    from ...client.security.acl_admin import Acl, AclQuery

ACL_COLUMNS = headings(
    "principal", "permission", "operation", "resource", "name", "pattern", "host"
)
ACL_OPTIONAL = ("host", "pattern")
OPERATIONS = {each.word.lower(): each for each in AclOperation if each is not AclOperation.ANY}
Texts = list[str] | None
Pattern = Annotated[
    Literal["literal", "prefixed"], Parameter(help="Take names literally, or as prefixes.")
]
PatternWanted = Annotated[
    Literal["literal", "prefixed", "match", "any"],
    Parameter(
        help="The pattern type of the ACLs. match selects all ACLs that apply to a resource "
        "of this name."
    ),
]
Principals = Annotated[Texts, Parameter(help="A principal, e.g. User:alice.", negative=())]
Operations = Annotated[
    Texts,
    Parameter(help="An operation, e.g. Read or Write. The default is all of them.", negative=()),
]
Host = Annotated[str | None, Parameter(help="The address of a client. The default is any address.")]
Flag = Parameter(negative=())


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources that an ACL names, where * stands for all of a kind."""

    topic: Annotated[Texts, Parameter(help="The name of a topic.", negative=())] = None
    group: Annotated[Texts, Parameter(help="The name of a group.", negative=())] = None
    transactional_id: Annotated[Texts, Parameter(help="The transactional id.", negative=())] = None
    cluster: Annotated[
        bool, Parameter(name="--cluster", help="The ACL is about the cluster itself.", negative=())
    ] = False

    @property
    def each(self) -> list[tuple[ResourceType, str]]:
        """Return the type and name of each resource in the options."""
        names = (
            (ResourceType.TOPIC, self.topic),
            (ResourceType.GROUP, self.group),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_id),
        )
        found = [(resource_type, name) for resource_type, some in names for name in some or ()]
        return [*found, (ResourceType.CLUSTER, CLUSTER_NAME)] if self.cluster else found


NOTHING = Resources()


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    about = "List, add or remove access control lists (ACLs)."
    add_family(app, "acl", about, add, remove, list=list_acls)


def list_acls(
    *,
    resources: Resources = NOTHING,
    principal: Principals = None,
    pattern: PatternWanted = "any",
    query: Query = QUERY,
) -> None:
    """List all ACLs, or those about a resource or a principal."""
    wanted = _queries(resources, principal, (), (), pattern, None)
    with query.admin() as admin:
        found = {acl for each in wanted for acl in admin.acls.list(each)}
    show(
        [_row(acl) for acl in sorted(found)],
        query.format,
        columns=ACL_COLUMNS,
        optional=ACL_OPTIONAL,
    )


def add(
    *,
    resources: Resources = NOTHING,
    allow: Principals = None,
    deny: Principals = None,
    operation: Operations = None,
    producer: Annotated[
        bool, Parameter(help="Add the permissions that a producer to --topic needs."), Flag
    ] = False,
    consumer: Annotated[
        bool,
        Parameter(help="Add the permissions that a consumer of --topic in --group needs."),
        Flag,
    ] = False,
    pattern: Pattern = "literal",
    host: Host = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Add ACLs for each combination of principal, operation and resource."""
    from ...client.security.acl_admin import Acl

    if not resources.each or not (allow or deny):
        raise Failure(
            "Who, and what? oncelog acl add --allow User:NAME --operation Read --topic TOPIC",
            exit_code=2,
        )
    wanted = _wanted(resources, operation, is_producer=producer, is_consumer=consumer)
    acls = [
        Acl(
            resource_type,
            # A prefix of the cluster's name is not allowed, as in kafka-acls, since there is one
            # cluster.
            PatternType.LITERAL
            if resource_type is ResourceType.CLUSTER
            else PatternType[pattern.upper()],
            name,
            principal,
            each,
            permission,
            host or "*",
        )
        for permission, principals in ((AclPermission.ALLOW, allow), (AclPermission.DENY, deny))
        for principal in principals or ()
        for resource_type, name, each in wanted
    ]
    with cluster.admin() as admin:
        admin.acls.create(acls)
    for acl in acls:
        say(f"added: {_words(acl)}")


def remove(
    *,
    resources: Resources = NOTHING,
    allow: Principals = None,
    deny: Principals = None,
    operation: Operations = None,
    pattern: PatternWanted = "literal",
    host: Host = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Remove all ACLs of a resource, or only those of a principal, an operation or a host."""
    if not resources.each and not (allow or deny):
        raise Failure(
            "Which ACLs? oncelog acl remove --topic TOPIC [--allow User:NAME] [--operation Read]",
            exit_code=2,
        )
    operations = tuple(map(_operation, operation or ()))
    permissions = (AclPermission.ALLOW,) * bool(allow) + (AclPermission.DENY,) * bool(deny)
    wanted = [
        query
        for permission in permissions or (AclPermission.ANY,)
        for query in _queries(
            resources,
            deny if permission is AclPermission.DENY else allow,
            operations,
            (permission,),
            pattern,
            host,
        )
    ]
    with cluster.admin() as admin:
        gone = admin.acls.delete(wanted)
    for acl in gone:
        say(f"removed: {_words(acl)}")
    if not gone:
        say("there is no such ACL")


def _wanted(
    resources: Resources, operations: Texts, *, is_producer: bool, is_consumer: bool
) -> list[tuple[ResourceType, str, AclOperation]]:
    """Return each resource in the options with each operation to allow or deny.

    With --producer and --consumer, the operations are those of kafka-acls.
    """
    op = AclOperation
    if not (is_producer or is_consumer):
        chosen = [_operation(each) for each in operations or ("all",)]
        return [(kind, name, each) for kind, name in resources.each for each in chosen]
    if operations:
        raise Failure("--producer and --consumer say which operations.", exit_code=2)
    by_type: dict[ResourceType, list[AclOperation]] = {}
    if is_producer:
        by_type[ResourceType.TOPIC] = [op.WRITE, op.DESCRIBE, op.CREATE]
        by_type[ResourceType.TRANSACTIONAL_ID] = [op.WRITE, op.DESCRIBE]
        by_type[ResourceType.CLUSTER] = [op.IDEMPOTENT_WRITE]
    if is_consumer:
        of_topic = by_type.setdefault(ResourceType.TOPIC, [])
        of_topic += [each for each in (op.READ, op.DESCRIBE) if each not in of_topic]
        by_type[ResourceType.GROUP] = [op.READ]
    return [(kind, name, each) for kind, name in resources.each for each in by_type.get(kind, ())]


def _operation(text: str) -> AclOperation:
    found = OPERATIONS.get(text.replace("_", "").lower())
    if found is None:
        known = ", ".join(each.word for each in OPERATIONS.values())
        raise Failure(f"{text} is no operation. There are: {known}.", exit_code=2)
    return found


def _queries(
    resources: Resources,
    principals: Texts,
    operations: tuple[AclOperation, ...],
    permissions: tuple[AclPermission, ...],
    pattern: str,
    host: str | None,
) -> "list[AclQuery]":
    """Return a filter for each combination of the options. An omitted option matches everything."""
    from ...client.security.acl_admin import AclQuery

    anything: list[tuple[ResourceType, str | None]] = [(ResourceType.ANY, None)]
    return [
        AclQuery(
            resource_type,
            PatternType.ANY if name is None else PatternType[pattern.upper()],
            name,
            principal,
            operation,
            permission,
            host,
        )
        for resource_type, name in resources.each or anything
        for principal in principals or (None,)
        for operation in operations or (AclOperation.ANY,)
        for permission in permissions or (AclPermission.ANY,)
    ]


def _row(acl: "Acl") -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "permission": acl.permission.word,
        "operation": acl.operation.word,
        "resource": acl.resource_type.word,
        "name": acl.name,
        "pattern": acl.pattern_type.word,
        "host": acl.host,
    }


def _words(acl: "Acl") -> str:
    resource = f"{acl.resource_type.word} {acl.name}"
    if acl.resource_type is ResourceType.CLUSTER:
        resource = "the cluster"
    elif acl.pattern_type is PatternType.PREFIXED:
        resource = f"{acl.resource_type.word}s {acl.name}..."
    who = f"{acl.principal} from {acl.host}" if acl.host != "*" else acl.principal
    verb = "may" if acl.permission is AclPermission.ALLOW else "may not"
    return f"{who} {verb} {acl.operation.word} {resource}"
