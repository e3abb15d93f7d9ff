"""Injects faults of certificates, logins and permissions on a secured cluster, and restores them.

The clients of the load are no super users. USER logs in by SCRAM, repeatedly (KIP-368), with the
permissions that ACLs grant. A separate client verifies each fault. The clients of the load are
affected, too, and their refusals are in the history as errors.
"""

import asyncio
import contextlib
import hashlib
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...client.admin import Admin
from ...client.producer import Producer
from ...client.security.acl_admin import Acl, AclQuery
from ...deploy.cluster.private import write_private
from ...deploy.cluster.secured import files
from ...deploy.cluster.secured.connection import client_config
from ...deploy.faults.engine import Action, EffectNotSeen
from ...deploy.faults.schedule import Fault
from ...wire.acls import WILDCARD, AclOperation, PatternType, ResourceType
from ...wire.errors import (
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
    error_for,
)
from .client_actions import CHURN_PREFIX, SEEN_WITHIN_S
from .context import ChaosContext

if TYPE_CHECKING:
    from ...deploy.cluster.local_cluster import Cluster

USER, MECHANISM, HASH, MECHANISM_NUMBER, ITERATIONS = "load", "SCRAM-SHA-512", "sha512", 2, 4_096
ALTER_USER_SCRAM_CREDENTIALS, RESOURCE_NOT_FOUND = 51, 91
LOGIN_LASTS_S = 4.0
CONFIG = {"connections.max.reauth.ms": f"{LOGIN_LASTS_S * 1000:.0f}"}
TIMEOUT_MS = 5_000
GIVEN_BACK_S = 120.0
_RIGHTS = (
    (ResourceType.TOPIC, AclOperation.READ),
    (ResourceType.TOPIC, AclOperation.WRITE),
    (ResourceType.GROUP, AclOperation.ALL),
    (ResourceType.TRANSACTIONAL_ID, AclOperation.ALL),
    (ResourceType.CLUSTER, AclOperation.ALL),
)
ACLS = [
    Acl(
        kind,
        PatternType.LITERAL,
        "kafka-cluster" if kind == ResourceType.CLUSTER else WILDCARD,
        f"User:{USER}",
        operation,
    )
    for kind, operation in _RIGHTS
]
MAY_WRITE = ACLS[1]
Change = Callable[[Admin], Awaitable[object]]


def admit_user(cluster: "Cluster") -> str:
    """Create USER with its ACLs. Return the path of a properties file for its clients."""
    password = secrets.token_urlsafe(18)
    cluster.ask(partial(_set_password, password=password))
    cluster.ask(lambda admin: admin.acls.create(ACLS))
    kind = files.CLIENT_KINDS[0]
    values = files.client_values(cluster.data, kind, USER, password, cluster.bootstrap)
    path = files.client_file(cluster.data, USER, kind)
    write_private(path, files.properties_text({**values, "sasl.mechanism": MECHANISM}))
    return str(path)


async def _set_password(admin: Admin, password: str | None) -> None:
    """Set the password of USER, or delete its SCRAM credential if `password` is None."""
    changes: dict[str, list[dict[str, Any]]] = {"deletions": [], "upsertions": []}
    of_user = {"name": USER, "mechanism": MECHANISM_NUMBER}
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


async def _give_back(give: Change, admin: Admin) -> None:
    """Restore the password or permission that a fault has removed, and retry after each error.

    Without it every later request of the load would be refused. Raises KafkaError after
    GIVEN_BACK_S.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + GIVEN_BACK_S
    while True:
        try:
            await give(admin)
            return
        except KafkaError:
            if loop.time() > end_s:
                raise
        await asyncio.sleep(0.5)


def _certificate_expires(context: ChaosContext, fault: Fault) -> None:
    folder = context.cluster.data / files.TLS
    used, expired = folder / files.NODE_CERTIFICATE, folder / files.EXPIRED_CERTIFICATE
    good = used.read_text(encoding="utf-8")
    is_expired = partial(_is_expired, context)
    files.write_whole(used, expired.read_text(encoding="utf-8"))
    try:
        context.until(is_expired, SEEN_WITHIN_S, "an expired certificate")
        context.hit(fault, "all nodes", fault.between(1, 0.3, 2.0))
    finally:
        files.write_whole(used, good)
        context.until(lambda: not is_expired(), SEEN_WITHIN_S, "a good certificate", mends=True)


def _is_expired(context: ChaosContext) -> bool:
    """Return whether a listener of some node presents an expired certificate."""
    about = ssl.create_default_context(cafile=str(context.cluster.data / files.TLS / "ca.pem"))
    for entry in context.cluster.file.nodes:
        try:
            with (
                socket.create_connection((entry.host, entry.port), 1.0) as plain,
                about.wrap_socket(plain, server_hostname=entry.host),
            ):
                pass
        except ssl.SSLCertVerificationError as problem:
            return "expired" in problem.verify_message
        except OSError:  # it is down
            continue
    return False


def _password_change(context: ChaosContext, fault: Fault) -> None:
    password = client_config(context.connection)["sasl.password"]

    async def logs_in(_: Admin) -> bool | None:
        """Return whether a broker accepts the old password, or None if no broker answers."""
        with contextlib.suppress(KafkaError):
            try:
                async with Admin(client_config(context.connection), timeout_ms=1_000) as admin:
                    await admin.describe_cluster()
                return True
            except SaslAuthenticationFailed:
                return False
        return None

    def is_good() -> bool | None:
        return context.cluster.ask(logs_in)

    context.cluster.ask(partial(_set_password, password=secrets.token_urlsafe(18)))
    try:
        context.until(lambda: is_good() is False, SEEN_WITHIN_S, "a login that is refused")
        context.hit(fault, f"user {USER}", fault.between(1, 0.3, 2.0))
    finally:
        context.cluster.ask(partial(_give_back, partial(_set_password, password=password)))
    context.until(lambda: bool(is_good()), SEEN_WITHIN_S, "the password of before", mends=True)


def _reauthentication_fails(context: ChaosContext, fault: Fault) -> None:
    password = client_config(context.connection)["sasl.password"]
    _in_a_transaction(
        context,
        fault,
        partial(_set_password, password=None),
        partial(_set_password, password=password),
        refused_with=SaslAuthenticationFailed,
    )


def _acl_taken(context: ChaosContext, fault: Fault) -> None:
    query = AclQuery(
        MAY_WRITE.resource_type,
        MAY_WRITE.pattern_type,
        MAY_WRITE.name,
        MAY_WRITE.principal,
        MAY_WRITE.operation,
    )
    _in_a_transaction(
        context,
        fault,
        lambda admin: admin.acls.delete([query]),
        lambda admin: admin.acls.create([MAY_WRITE]),
        refused_with=TopicAuthorizationFailed,
    )


def _in_a_transaction(
    context: ChaosContext,
    fault: Fault,
    take: Change,
    give: Change,
    *,
    refused_with: type[KafkaError],
) -> None:
    """Remove a permission during a transaction, wait for a refusal, and restore the permission."""
    topic = f"{CHURN_PREFIX}{fault.kind}-{int(fault.numbers[0] * 1e6)}"
    replicas = context.settings.replication_factor

    def producer() -> Producer:
        return Producer(
            client_config(context.connection),
            transactional_id=topic,
            max_block_ms=TIMEOUT_MS,
            delivery_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS // 2,
            transaction_timeout_ms=TIMEOUT_MS,
        )

    async def send_until_refused(ours: Producer) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + LOGIN_LASTS_S + 2 * SEEN_WITHIN_S
        while loop.time() < end_s and not context.stopping.is_set():
            try:
                await (await ours.send(topic, b"x", partition=0))
            except refused_with:
                return
            await asyncio.sleep(0.1)
        raise EffectNotSeen(f"no {refused_with.__name__} was seen inside a transaction")

    async def strike(admin: Admin) -> None:
        ours = producer()
        try:
            await ours.init_transactions()
            await ours.begin_transaction()
            await (await ours.send(topic, b"x", partition=0))
            try:
                await take(admin)
                await send_until_refused(ours)
                context.hit(fault, f"user {USER}")
                await asyncio.sleep(fault.between(1, 0.1, 1.0))
            finally:
                await _give_back(give, admin)
        finally:
            with contextlib.suppress(KafkaError):  # its transaction failed
                await ours.close()
        async with producer() as successor:  # it ends the open transaction
            await successor.init_transactions()

    context.cluster.ask(
        lambda admin: admin.create_topic(topic, partitions=1, replication_factor=replicas)
    )
    try:
        context.cluster.ask(strike)
    finally:
        context.cluster.ask(lambda admin: admin.delete_topics([topic]))


SECURITY_ACTIONS: dict[str, Action] = {
    "certificate-expires": _certificate_expires,
    "password-change": _password_change,
    "reauthentication-fails": _reauthentication_fails,
    "acl-taken": _acl_taken,
}
