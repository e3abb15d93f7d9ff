"""Injects faults of certificates, logins and permissions on a secured cluster, and restores them.

The clients of the load log in as USER (`secured_user.py`), repeatedly (KIP-368). A separate client
verifies each fault. The clients of the load are affected, too, and their refusals are in the
history as errors.
"""

import asyncio
import contextlib
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING

from ...client.admin import Admin
from ...client.producer import Producer
from ...deploy.cluster.private import write_private
from ...deploy.cluster.secured import files
from ...deploy.cluster.secured.connection import client_config
from ...deploy.faults.engine import Action, EffectNotSeen
from ...deploy.faults.schedule import Fault
from ...deploy.faults.secured_user import Removal, SecuredUser, restore
from ...wire.errors import KafkaError, SaslAuthenticationFailed, TopicAuthorizationFailed
from .client_actions import CHURN_PREFIX, SEEN_WITHIN_S
from .context import ChaosContext

if TYPE_CHECKING:
    from ...deploy.cluster.local_cluster import Cluster

USER = "load"
LOGIN_LASTS_S = 4.0
CONFIG = {"connections.max.reauth.ms": f"{LOGIN_LASTS_S * 1000:.0f}"}
TIMEOUT_MS = 5_000


def admit_user(cluster: "Cluster") -> str:
    """Create USER with its ACLs. Return the path of a properties file for its clients."""
    user = SecuredUser.admit(cluster, USER)
    path = files.client_file(cluster.data, USER, files.CLIENT_KINDS[0])
    write_private(path, files.properties_text(user.client_values(cluster)))
    return str(path)


def _removal(context: ChaosContext, fault: Fault) -> Removal:
    password = client_config(context.connection)["sasl.password"]
    return SecuredUser(USER, password).removals[fault.kind]


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

    removal = _removal(context, fault)
    context.cluster.ask(removal.take)
    try:
        context.until(lambda: is_good() is False, SEEN_WITHIN_S, "a login that is refused")
        context.hit(fault, f"user {USER}", fault.between(1, 0.3, 2.0))
    finally:
        context.cluster.ask(partial(restore, removal))
    context.until(lambda: bool(is_good()), SEEN_WITHIN_S, "the password of before", mends=True)


def _reauthentication_fails(context: ChaosContext, fault: Fault) -> None:
    _in_a_transaction(context, fault, refused_with=SaslAuthenticationFailed)


def _acl_taken(context: ChaosContext, fault: Fault) -> None:
    _in_a_transaction(context, fault, refused_with=TopicAuthorizationFailed)


def _in_a_transaction(
    context: ChaosContext, fault: Fault, *, refused_with: type[KafkaError]
) -> None:
    """Remove a permission during a transaction, wait for a refusal, and restore the permission."""
    removal = _removal(context, fault)
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
                await removal.take(admin)
                await send_until_refused(ours)
                context.hit(fault, f"user {USER}")
                await asyncio.sleep(fault.between(1, 0.1, 1.0))
            finally:
                await restore(removal, admin)
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
