"""A user of a secured cluster of ours, and the faults of its password and of its permissions.

The user is no super user. It logs in by SCRAM, with the permissions that ACLs grant. A fault is a
pair of changes through the Admin API: one removes a credential or an ACL, and the other restores
it.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self

from ...client.admin import Admin
from ...client.security.acl_admin import Acl, AclQuery
from ...wire.acls import WILDCARD, AclOperation, PatternType, ResourceType
from ...wire.errors import KafkaError, error_for
from ..cluster.local_cluster import Cluster
from ..cluster.secured import files

MECHANISM, HASH, MECHANISM_NUMBER, ITERATIONS = "SCRAM-SHA-512", "sha512", 2, 4_096
ALTER_USER_SCRAM_CREDENTIALS, RESOURCE_NOT_FOUND = 51, 91
TIMEOUT_MS = 5_000
RESTORED_WITHIN_S = 120.0
_ON_TOPICS = (  # one by one, since a fault removes WRITE only
    AclOperation.WRITE,
    AclOperation.READ,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_RIGHTS = (
    *((ResourceType.TOPIC, operation) for operation in _ON_TOPICS),
    (ResourceType.GROUP, AclOperation.ALL),
    (ResourceType.TRANSACTIONAL_ID, AclOperation.ALL),
    (ResourceType.CLUSTER, AclOperation.ALL),
)
Change = Callable[[Admin], Awaitable[object]]


class Removal(NamedTuple):
    """A fault: the change that removes something, and the change that restores it."""

    take: Change
    give: Change


@dataclass(frozen=True, slots=True)
class SecuredUser:
    """A user with its password, and with all permissions that clients need."""

    name: str
    password: str = field(repr=False)

    @classmethod
    def admit(cls, cluster: Cluster, name: str) -> Self:
        """Create a user with a random password and its ACLs."""
        made = cls(name, secrets.token_urlsafe(18))
        cluster.ask(partial(made._set_password, made.password))
        cluster.ask(lambda admin: admin.acls.create(made.acls))
        return made

    def client_values(self, cluster: Cluster) -> dict[str, str]:
        """Return the configuration of a client that logs in as the user, in librdkafka's keys."""
        kind = files.CLIENT_KINDS[0]
        values = files.client_values(
            cluster.data, kind, self.name, self.password, cluster.bootstrap
        )
        return {**values, "sasl.mechanism": MECHANISM}

    @property
    def acls(self) -> list[Acl]:
        return [
            Acl(
                kind,
                PatternType.LITERAL,
                "kafka-cluster" if kind == ResourceType.CLUSTER else WILDCARD,
                f"User:{self.name}",
                operation,
            )
            for kind, operation in _RIGHTS
        ]

    @property
    def removals(self) -> dict[str, Removal]:
        """Return the faults, by their kinds in `schedule.py`."""
        write = self.acls[0]
        query = AclQuery(
            write.resource_type, write.pattern_type, write.name, write.principal, write.operation
        )
        restored = partial(self._set_password, self.password)
        return {
            "password-change": Removal(self._set_other_password, restored),
            "reauthentication-fails": Removal(partial(self._set_password, None), restored),
            "acl-taken": Removal(
                lambda admin: admin.acls.delete([query]), lambda admin: admin.acls.create([write])
            ),
        }

    async def _set_other_password(self, admin: Admin) -> None:
        await self._set_password(secrets.token_urlsafe(18), admin)

    async def _set_password(self, password: str | None, admin: Admin) -> None:
        """Set the user's password, or delete its SCRAM credential if `password` is None."""
        changes: dict[str, list[dict[str, Any]]] = {"deletions": [], "upsertions": []}
        of_user = {"name": self.name, "mechanism": MECHANISM_NUMBER}
        if password is None:
            changes["deletions"].append(of_user)
        else:
            salt = secrets.token_bytes(24)
            salted = hashlib.pbkdf2_hmac(HASH, password.encode(), salt, ITERATIONS)
            stored = {"iterations": ITERATIONS, "salt": salt, "salted_password": salted}
            changes["upsertions"].append({**of_user, **stored})

        async def attempt() -> None:
            connection = await admin.view.any_broker()
            answer = await connection.call(ALTER_USER_SCRAM_CREDENTIALS, changes)
            for result in answer.results:
                if result.error_code not in (0, RESOURCE_NOT_FOUND):
                    raise error_for(result.error_code, result.error_message)

        await admin.view.retrying(attempt, timeout_ms=TIMEOUT_MS)


async def restore(removal: Removal, admin: Admin) -> None:
    """Restore the credential or ACL that a fault has removed, and retry after each error.

    Without it every later request of the user would be refused. Raises KafkaError after
    RESTORED_WITHIN_S.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + RESTORED_WITHIN_S
    while True:
        try:
            await removal.give(admin)
            return
        except KafkaError:
            if loop.time() > end_s:
                raise
        await asyncio.sleep(0.5)
