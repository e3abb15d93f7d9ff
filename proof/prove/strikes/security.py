"""Faults of certificates, passwords and permissions on secured clusters.

Certificates are those that the proxy presents to the application, so they may expire in front of
any cluster with TLS. Passwords and ACLs are changed only in the run's own cluster. In another
cluster, a run that is killed would leave them changed.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from ....client.admin import Admin
from ....deploy.cluster.failure import Failure
from ....deploy.cluster.local_cluster import Cluster
from ....deploy.faults.protocol_proxy.events import Request
from ....deploy.faults.protocol_proxy.proxy import ProtocolProxy
from ....deploy.faults.protocol_proxy.rules import Ending
from ....deploy.faults.secured_user import Change, SecuredUser, restore
from ....wire.error_codes import ErrorCode
from ....wire.errors import KafkaError
from ..facts import Struck
from ..plan import Act, AimedFault
from .refusals import Refusals

USER = "application"
# So long that brokers close no connection. The proxy tells a shorter time while it is needed.
CONFIG = {"connections.max.reauth.ms": "86400000"}
LIFETIME_MS = 2_000
SEEN_WITHIN_S, LASTS_S = 6.0, (0.3, 2.0)
APPLIED_S = 0.2  # brokers apply a new password shortly after the answer
REFUSED_WITH = {
    Act.PASSWORD: ErrorCode.SASL_AUTHENTICATION_FAILED,
    Act.REAUTHENTICATION: ErrorCode.SASL_AUTHENTICATION_FAILED,
    Act.ACL: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
Hold = Callable[
    [AimedFault, Callable[[AimedFault, Request], tuple[Ending, str]]], Struck
]  # see Striker


class SecurityStrikes:
    """Injects faults of certificates, passwords and ACLs, and ends each of them.

    user: the application's, in our own cluster. hold: holds the next request that a fault is aimed
    at. one: chooses an instance, and returns its name and its work in flight. wait: waits until a
    condition holds, or a deadline.
    """

    def __init__(
        self,
        proxy: ProtocolProxy,
        cluster: Cluster | None,
        user: SecuredUser | None,
        refusals: Refusals,
        *,
        hold: Hold,
        one: Callable[[], tuple[str, int]],
        wait: Callable[[Callable[[], bool], float], bool],
        seed: int,
    ) -> None:
        self._proxy, self._cluster, self._user = proxy, cluster, user
        self._refusals, self._hold, self._one, self._wait = refusals, hold, one, wait
        self._chance = random.Random(f"oncelog prove security {seed}")

    def expire(self, fault: AimedFault) -> Struck:
        """Present an expired certificate, and cut the connections of an instance.

        Its new connections fail until the valid certificate is back.
        """
        name, met = self._one()
        at_s = time.monotonic()
        self._proxy.present(is_expired=True)
        try:
            cut = self._proxy.disconnect(name)
            before = self._proxy.failed_handshakes(name)
            self._wait(lambda: self._proxy.failed_handshakes(name) > before, SEEN_WITHIN_S)
            self._last()
            failed = self._proxy.failed_handshakes(name) - before
        finally:
            self._proxy.present(is_expired=False)
        if not failed:
            what = f"{name} did not refuse the expired certificate"
            return Struck(at_s, name, fault.name, f"{fault.name}: {what}", is_made=False)
        what = (
            f"the certificate expired for {time.monotonic() - at_s:.1f} s: {cut} connections of "
            f"{name} were cut, and its new handshakes failed"
        )
        return Struck(at_s, name, fault.name, what, met)

    def change_password(self, fault: AimedFault) -> Struck:
        """Change the password, and cut the connections of an instance, so that it logs in again."""
        name, met = self._one()
        at_s = time.monotonic()
        with self._removed(fault) as take:
            try:
                take()
                taken_s = time.monotonic()
                cut = self._proxy.disconnect(name)
                self._wait_for_refusal(fault, name, taken_s)
            except Failure as problem:
                return Struck(at_s, name, fault.name, str(problem), is_made=False)
        count = self._refusals.since(name, REFUSED_WITH[fault.act], taken_s)
        what = (
            f"the password was changed for {time.monotonic() - at_s:.1f} s: {cut} connections "
            f"of {name} were cut, and {count} of its logins were refused"
        )
        return Struck(at_s, name, fault.name, what, met)

    def refuse_reauthentication(self, fault: AimedFault) -> Struck:
        """Refuse to authenticate an instance again in its transaction.

        Its connections are cut before, since a login of before has a long lifetime.
        """
        name, _ = self._one()
        self._proxy.shorten_logins(LIFETIME_MS)
        try:
            self._proxy.disconnect(name)
            return self.strike_in_a_transaction(fault)
        finally:
            self._proxy.shorten_logins(0)

    def strike_in_a_transaction(self, fault: AimedFault) -> Struck:
        """Remove the user or an ACL while a request is held, and restore it after a refusal."""
        with self._removed(fault) as take:

            def remove(_: AimedFault, request: Request) -> tuple[Ending, str]:
                take()
                return None, ""

            struck = self._hold(fault, remove)
            if not struck.is_made:
                return struck
            try:
                self._wait_for_refusal(fault, struck.instance, struck.at_s)
            except Failure as problem:
                return replace(struck, what=str(problem), is_made=False)
        lasted = f"{time.monotonic() - struck.at_s:.1f} s"
        if fault.act is Act.ACL:
            what = (
                f"a Produce of {struck.instance} was refused in its transaction: the ACL for Write "
                f"was removed for {lasted}"
            )
        else:
            what = (
                f"{struck.instance} could not authenticate again in its transaction: its user was "
                f"removed for {lasted}"
            )
        return replace(struck, what=what)

    @contextmanager
    def _removed(self, fault: AimedFault) -> Iterator[Callable[[], None]]:
        """Yield the function that removes a credential or an ACL. Restore it after the block.

        It is not restored at an interruption, which ends our own cluster.
        """
        if self._user is None or self._cluster is None:
            raise Failure(f"{fault.name} is made only in a secured cluster of the run.")
        removal, changing = self._user.removals[fault.act.value], threading.Lock()
        is_tried = is_over = False

        def take() -> None:
            nonlocal is_tried
            with changing:
                if is_over:  # too late, since nothing would restore it
                    raise Failure(f"{fault.name} is over.")
                is_tried = True
                self._change(removal.take)
                time.sleep(APPLIED_S)

        def end() -> None:
            nonlocal is_over
            with changing:
                is_over = True
                if is_tried:
                    self._change(partial(restore, removal))

        try:
            yield take
        except Exception:
            end()
            raise
        end()

    def _change(self, change: Change) -> None:
        async def work(admin: Admin) -> None:
            await change(admin)

        assert self._cluster is not None
        try:
            self._cluster.ask(work)
        except KafkaError as problem:
            raise Failure(f"The cluster did not change its users or ACLs: {problem}") from problem

    def _wait_for_refusal(self, fault: AimedFault, name: str, since_s: float) -> None:
        """Wait until a broker has refused the instance, and for a moment more.

        Raises Failure if no broker does.
        """
        error = REFUSED_WITH[fault.act]
        if not self._wait(lambda: self._refusals.since(name, error, since_s) > 0, SEEN_WITHIN_S):
            raise Failure(f"{fault.name}: no request of {name} was refused with {error.name}")
        self._last()

    def _last(self) -> None:
        time.sleep(self._chance.uniform(*LASTS_S))
