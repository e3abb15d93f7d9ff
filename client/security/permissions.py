"""Names the missing permission in an error, where brokers report only that one is missing.

The file does no I/O. The required operations are those of Kafka's table of ACLs. The message names
the operation that a user would be granted for the task, if that operation implies the required one
(Read and Write imply Describe).
"""

from ...wire.errors import ErrorCode, KafkaError, error_for

_E = ErrorCode
IDEMPOTENT = "IdempotentWrite"
RESOURCES = {
    _E.TOPIC_AUTHORIZATION_FAILED: ("topic", "--topic"),
    _E.GROUP_AUTHORIZATION_FAILED: ("group", "--group"),
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("transactional id", "--transactional-id"),
    _E.CLUSTER_AUTHORIZATION_FAILED: ("cluster", "--cluster"),
}


def error_about(
    code: int, name: str, operation: str, message: str | None = None, *, of_cluster: str = ""
) -> KafkaError:
    """Return the error of `error_for`.

    An authorization error names the missing permission and the command to grant it instead of
    `message`.
    operation: the operation on the resource `name`. of_cluster: the operation on the cluster.
    """
    found = RESOURCES.get(code)  # type: ignore[call-overload]
    if found is None:
        return error_for(code, message)
    kind, option = found
    if code == _E.CLUSTER_AUTHORIZATION_FAILED:
        name, operation = "", of_cluster or operation
    resource = f"{kind} {name}".rstrip()
    also = " (Write on any topic would do since Kafka 2.8)" if operation == IDEMPOTENT else ""
    return error_for(
        code,
        f"this client's user has no permission for {operation} on the {resource}{also}. "
        "Whoever administers the cluster grants it: kafka-acls --add --allow-principal User:NAME "
        f"--operation {operation} {f'{option} {name}'.rstrip()}",
    )
