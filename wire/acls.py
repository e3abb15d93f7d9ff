"""The numbers and names of Kafka's access control lists (KIP-11, KIP-290).

The names of the enumerations are Kafka's. `word` is the form in kafka-acls.
"""

from enum import IntEnum

WILDCARD = "*"  # any host, or any resource as the name of a LITERAL pattern
ANY_USER = "User:*"
CLUSTER_NAME = "kafka-cluster"  # the name of the only resource of type CLUSTER


class _Word(IntEnum):
    @property
    def word(self) -> str:
        """Return the name in Kafka's camel case, as in TransactionalId."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class ResourceType(_Word):
    """The type of the resource that an ACL protects."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Word):
    """The way to compare the name in an ACL with the name of a resource."""

    ANY = 1
    MATCH = 2  # only in a filter, for every ACL that applies to the named resource
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Word):
    """The operation on a resource that an ACL allows or denies."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_Word):
    """The permission of an ACL, which allows or denies."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_O = AclOperation
# The operations of each resource type (KIP-430), which the authorizer checks when a client asks for
# its permitted operations.
SUPPORTED_OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        _O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}  # fmt: skip


def operation_bits(operations: "tuple[AclOperation, ...] | list[AclOperation]") -> int:
    """Return the operations as a bit field, in which operation n is bit n (KIP-430)."""
    return sum(1 << operation for operation in operations)
