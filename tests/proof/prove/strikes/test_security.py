"""Test that each fault of a secured cluster ends, also without an effect or after an error."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.faults.protocol_proxy.events import Connection, ConnectionClosed
from oncelog.deploy.faults.secured_user import Removal
from oncelog.proof.prove.facts import Struck
from oncelog.proof.prove.observed import wait_for
from oncelog.proof.prove.plan import FAULTS, SECURED
from oncelog.proof.prove.strikes import security
from oncelog.proof.prove.strikes.refusals import Refusals
from oncelog.proof.prove.strikes.security import REFUSED_WITH, SecurityStrikes
from oncelog.wire.error_codes import ErrorCode
from oncelog.wire.errors import RequestTimedOut

from ....loops import run_in_new_loop

CHANGING = [fault for fault in SECURED if fault.needs_user]
IN_TRANSACTIONS = [fault for fault in CHANGING if fault.needs]


class TellingProxy:
    """A proxy that lists what it presents, and whose next connections have failing handshakes."""

    def __init__(self, failing: int = 0) -> None:
        self.done: list[str] = []
        self.failing, self._failed = failing, 0

    def present(self, *, is_expired: bool) -> None:
        self.done.append("expired" if is_expired else "valid")

    def disconnect(self, instance: str) -> int:
        self.done.append(f"cut {instance}")
        return 3

    def shorten_logins(self, lifetime_ms: int) -> None:
        self.done.append(f"logins last {lifetime_ms}")

    def failed_handshakes(self, instance: str) -> int:
        before, self._failed = self._failed, self.failing
        return before


class ChangedCluster:
    """A cluster that runs changes, and lists them. Its controller may be away."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.is_away = False

    def ask(self, work: Callable[[Any], Any]) -> None:
        if self.is_away:
            raise RequestTimedOut("the controller is away")
        run_in_new_loop(work(SimpleNamespace()), is_uvloop=False)

    def change(self, what: str) -> Callable[[Any], Any]:
        async def changed(_: Any) -> None:
            self.done.append(what)

        return changed

    @property
    def user(self) -> Any:
        removal = Removal(self.change("take"), self.change("give"))
        return SimpleNamespace(removals=dict.fromkeys((f.act.value for f in CHANGING), removal))


class Telling(Refusals):
    """Refusals of one instance, which the test adds."""

    def refuse(self, error: ErrorCode, at_s: float = float("inf")) -> None:
        self._times["one", int(error)].append(at_s)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "SEEN_WITHIN_S", 0.05)
    monkeypatch.setattr(security, "LASTS_S", (0.0, 0.01))
    monkeypatch.setattr(security, "APPLIED_S", 0.0)


def strikes(
    proxy: Any = None,
    cluster: Any = None,
    refusals: Refusals | None = None,
    hold: Callable[..., Struck] | None = None,
    user: Any = None,
) -> SecurityStrikes:
    return SecurityStrikes(
        cast(Any, proxy or TellingProxy()), cluster, user or (cluster and cluster.user),
        refusals or Telling(), hold=cast(Any, hold), one=lambda: ("one", 2),
        wait=lambda holds, timeout_s: wait_for(holds, timeout_s), seed=1,
    )  # fmt: skip


def held(fault: Any, act: Callable[..., Any]) -> Struck:
    """Hold a request at once, as the proxy does: a Failure makes the fault a missed one."""
    try:
        act(fault, SimpleNamespace(instance="one"))
    except Failure as problem:
        return Struck(1.0, "one", fault.name, str(problem), is_made=False)
    return Struck(1.0, "one", fault.name, "", 2)


def test_certificate_is_expired_until_a_handshake_has_failed() -> None:
    proxy = TellingProxy(failing=2)
    struck = strikes(proxy).expire(FAULTS["certificate-expires"])
    assert struck.is_made and struck.met == 2 and struck.instance == "one", struck
    assert proxy.done == ["expired", "cut one", "valid"]


def test_certificate_that_no_client_refuses_is_a_missed_fault() -> None:
    proxy = TellingProxy()
    struck = strikes(proxy).expire(FAULTS["certificate-expires"])
    assert not struck.is_made and "did not refuse the expired certificate" in struck.what
    assert proxy.done[-1] == "valid"


def test_certificate_is_valid_again_after_an_interruption() -> None:
    proxy = TellingProxy(failing=1)
    made = strikes(proxy)
    made._wait = cast(Any, interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.expire(FAULTS["certificate-expires"])
    assert proxy.done[-1] == "valid"


def interrupted(*_: Any) -> bool:
    raise KeyboardInterrupt


def test_password_is_changed_until_a_login_was_refused() -> None:
    proxy, cluster, refusals = TellingProxy(), ChangedCluster(), Telling()
    refusals.refuse(ErrorCode.SASL_AUTHENTICATION_FAILED)
    struck = strikes(proxy, cluster, refusals).change_password(FAULTS["password-change"])
    assert struck.is_made and "1 of its logins were refused" in struck.what, struck
    assert cluster.done == ["take", "give"] and proxy.done == ["cut one"]


@pytest.mark.parametrize("fault", IN_TRANSACTIONS, ids=lambda fault: fault.name)
def test_access_removed_in_a_transaction_is_restored_after_the_instance_was_refused(
    fault: Any,
) -> None:
    cluster, refusals = ChangedCluster(), Telling()
    refusals.refuse(REFUSED_WITH[fault.act])
    struck = strikes(None, cluster, refusals, held).strike_in_a_transaction(fault)
    assert struck.is_made and struck.met == 2 and "its transaction" in struck.what, struck
    assert cluster.done == ["take", "give"]


def test_logins_are_short_only_while_a_reauthentication_is_refused() -> None:
    proxy, fault = TellingProxy(), FAULTS["reauthentication-fails"]

    def nothing_comes(fault: Any, act: Callable[..., Any]) -> Struck:
        proxy.done.append("no login comes")
        return Struck(1.0, "", fault.name, "no request came", is_made=False)

    strikes(proxy, ChangedCluster(), hold=nothing_comes).refuse_reauthentication(fault)
    assert proxy.done == ["logins last 2000", "cut one", "no login comes", "logins last 0"]


@pytest.mark.parametrize("fault", CHANGING, ids=lambda fault: fault.name)
def test_access_removed_without_a_refused_request_is_restored_and_the_fault_is_missed(
    fault: Any,
) -> None:
    cluster, refusals = ChangedCluster(), Telling()
    refusals.refuse(REFUSED_WITH[fault.act], at_s=0.5)  # before the fault
    made = strikes(None, cluster, refusals, held)
    struck = made.strike_in_a_transaction(fault) if fault.needs else made.change_password(fault)
    assert not struck.is_made and "no request of one was refused with" in struck.what, struck
    assert cluster.done == ["take", "give"]


@pytest.mark.parametrize("fault", IN_TRANSACTIONS, ids=lambda fault: fault.name)
def test_access_is_not_removed_without_a_request_of_the_instance(fault: Any) -> None:
    cluster, acts = ChangedCluster(), list[Callable[..., Any]]()

    def nothing_comes(fault: Any, act: Callable[..., Any]) -> Struck:
        acts.append(act)
        return Struck(1.0, "", fault.name, "no request came", is_made=False)

    struck = strikes(None, cluster, hold=nothing_comes).strike_in_a_transaction(fault)
    assert not struck.is_made and cluster.done == []
    with pytest.raises(Failure, match="is over"):  # a thread that comes late
        acts[0](fault, SimpleNamespace(instance="one"))
    assert cluster.done == []


def test_access_removal_under_way_at_the_end_of_the_fault_is_undone_afterwards() -> None:
    cluster, begun, goes_on = ChangedCluster(), threading.Event(), threading.Event()
    fault, threads = FAULTS["acl-taken"], list[threading.Thread]()

    class Slow(ChangedCluster):
        def ask(self, work: Callable[[Any], Any]) -> None:
            if not begun.is_set():
                begun.set()
                goes_on.wait(10)
            super().ask(work)

    cluster = Slow()

    def gives_up(fault: Any, act: Callable[..., Any]) -> Struck:
        threads.append(threading.Thread(target=act, args=(fault, SimpleNamespace())))
        threads[0].start()
        assert begun.wait(10)
        threading.Timer(0.05, goes_on.set).start()
        return Struck(1.0, "", fault.name, "the hold has ended", is_made=False)

    strikes(None, cluster, hold=gives_up).strike_in_a_transaction(fault)
    threads[0].join(10)
    assert cluster.done == ["take", "give"]


def test_removed_access_is_restored_after_an_error_but_not_after_an_interruption() -> None:
    """An interruption ends our own cluster, and must not wait for a controller."""
    cluster, fault = ChangedCluster(), FAULTS["password-change"]
    made = strikes(None, cluster)
    made._wait = cast(Any, interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.change_password(fault)
    assert cluster.done == ["take"]

    def fails(*_: Any) -> bool:
        raise OSError("an instance cannot be started again")

    made._wait = cast(Any, fails)
    with pytest.raises(OSError, match="cannot be started"):
        made.change_password(fault)
    assert cluster.done == ["take", "take", "give"]


def test_removed_access_that_cannot_be_restored_ends_the_run() -> None:
    cluster, refusals = ChangedCluster(), Telling()
    refusals.refuse(ErrorCode.SASL_AUTHENTICATION_FAILED)
    made = strikes(None, cluster, refusals)

    def goes_away(holds: Callable[[], bool], _: float) -> bool:
        cluster.is_away = True
        return holds()

    made._wait = cast(Any, goes_away)
    with pytest.raises(Failure, match="did not change its users or ACLs"):
        made.change_password(FAULTS["password-change"])


@pytest.mark.parametrize("fault", CHANGING, ids=lambda fault: fault.name)
def test_fault_of_users_is_never_made_in_a_cluster_that_is_not_ours(fault: Any) -> None:
    made = strikes(TellingProxy())
    with pytest.raises(Failure, match="only in a secured cluster of the run"):
        made.strike_in_a_transaction(fault) if fault.needs else made.change_password(fault)


def test_login_on_the_id_of_a_closed_connection_is_no_reauthentication() -> None:
    refusals = Refusals()
    refusals._logged_in.add(7)
    request: Any = SimpleNamespace(connection=Connection(7, "one", 1, 0))
    assert refusals.is_reauthentication(request)
    refusals(ConnectionClosed(request.connection, 1.0, "it was cut"))
    assert not refusals.is_reauthentication(request)
