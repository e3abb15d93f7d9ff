"""`oncelog observe` reports mistakes against exactly once in the requests of an application."""

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.terminal import LoopLines, say, tell
from .common import DEFAULT_CLUSTER, ClusterOptions, say_missing
from .security.proxied import CaFile, Proxied, proxied

if TYPE_CHECKING:
    from ..client.blocking import BlockingAdmin
    from ..proof.prove.diagnosis.catalogue import ApplicationFinding
    from ..proof.prove.diagnosis.listener import DiagnosisListener
    from ..proof.prove.group_view import GroupLook

FOR_EVER_S = 7 * 24 * 3600.0
TURN_S = 0.5
INSTANCES_MAX = 100
SAW_NOTHING = 3
LOOK_S, LOOKS_S = 0.1, 10.0
DESCRIBED_MAX = 1_000  # transactional ids a look


def register(app: App) -> None:
    """Add the command of this file to `app`."""
    app.command(observe)


def observe(
    *,
    group: Annotated[
        str | None,
        Parameter(help="Watch this group through the cluster's own answers, without a proxy."),
    ] = None,
    instances: Annotated[
        int, Parameter(help="The number of instances. Each gets its own address.")
    ] = 1,
    seconds: Annotated[
        float | None,
        Parameter(
            help="End after this time in seconds. The default is to end at Ctrl-C, or after "
            "10 s with --group."
        ),
    ] = None,
    ca_file: CaFile = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Open a proxy between an application and its cluster, and report mistakes in its requests.

    The command prints one address for each instance. The application uses it instead of the
    cluster's. The command prints each finding immediately, and a summary at the end. The exit code
    is 1 if a mistake breaks exactly once, and 3 if no client used the address.
    """
    if seconds is not None and not seconds > 0:
        raise Failure("--seconds has to be more than 0.", exit_code=2)
    if not 1 <= instances <= INSTANCES_MAX:
        raise Failure(f"--instances is 1 to {INSTANCES_MAX}.", exit_code=2)
    if group is not None:
        return _look_at(group, LOOKS_S if seconds is None else seconds, cluster)
    return _watch(proxied(cluster, ca_file), instances, seconds, cluster)


def _watch(behind: Proxied, instances: int, seconds: float | None, cluster: ClusterOptions) -> int:
    from ..deploy.faults.protocol_proxy.proxy import ProtocolProxy
    from ..proof.prove.diagnosis.listener import DiagnosisListener

    printed = LoopLines()
    listener = DiagnosisListener(partial(_print_finding, printed))
    with ProtocolProxy(behind.config, [listener], tls=behind.tls) as proxy:
        for number in range(1, instances + 1):
            name = f"instance-{number}" if instances > 1 else ""
            tell(f"bootstrap.servers={proxy.address_for(name)}", *behind.lines)
        _wait_and_ask(listener, seconds, cluster)
    printed.report_missing()
    return _sum_up(listener)


def _wait_and_ask(
    listener: "DiagnosisListener", seconds: float | None, cluster: ClusterOptions
) -> None:
    """Wait for `seconds` or until Ctrl-C, and request the configs of each topic once it is written.

    The findings depend on these configs.
    """
    from ..proof.prove.diagnosis.listener import of_cluster
    from ..wire.errors import KafkaError

    asked, end_s = set[str](), time.monotonic() + (FOR_EVER_S if seconds is None else seconds)
    try:
        with cluster.admin() as admin:
            while (left_s := end_s - time.monotonic()) > 0:
                new = listener.written_topics - asked
                if new:
                    # an error does not end the proxy, which the application needs
                    with suppress(KafkaError):
                        for seen in admin.run(lambda a, n=new: of_cluster(a, n, time.monotonic())):
                            listener.see(seen)
                        asked |= new
                time.sleep(min(TURN_S, left_s))
    except KeyboardInterrupt:
        say("ended by Ctrl-C")


def _print_finding(printed: LoopLines, found: "ApplicationFinding") -> None:
    first, *more = found.lines()
    for line in (f"{time.strftime('%H:%M:%S')}  {first}", *more):
        printed.tell(line)


def _sum_up(listener: "DiagnosisListener") -> int:
    findings = listener.findings
    if not listener.requests:
        say("No client has used the address: give it to the application as its bootstrap.servers.")
        return SAW_NOTHING
    wrong = [found for found in findings if found.kind.weight == "wrong"]
    exposed = [found for found in findings if found.kind.weight != "wrong"]
    tell("", f"{listener.requests} requests seen: {len(wrong)} mistakes, {len(exposed)} exposures")
    for found in findings:
        tell(f"  {found.kind.weight:<8} {found.kind.name:<28} {found.subject}")
    if not wrong:
        tell(
            "No mistake was seen. Some mistakes show only in a rebalance, an abort or a lost "
            "answer: oncelog prove makes these."
        )
    return 1 if wrong else 0


# -- without the proxy


def _look_at(group: str, seconds: float, cluster: ClusterOptions) -> int:
    from ..proof.prove import group_view as v

    with cluster.admin() as admin:
        described = admin.groups.describe(group)
        facts = v.WatchedGroup(group=group, state=described.state, members=len(described.members))
        end_s, silent = time.monotonic() + seconds, dict[int, Exception]()
        try:
            while time.monotonic() < end_s:
                facts.see(_look(admin, group, silent))
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            say("ended by Ctrl-C")
        facts.offsets_partitions = len(admin.describe_topics([v.OFFSETS_TOPIC]))
        facts.min_insync = {topic: _min_insync(admin, topic) for topic in v.outputs(facts)}
    for line in v.conclusions(facts):
        tell(line)
    tell("Only the proxy (oncelog observe without --group) can see:")
    for line in v.NOT_SEEN:
        tell(f"  {line}")
    return say_missing(silent, "transactions")


def _look(admin: "BlockingAdmin", group: str, silent: dict[int, Exception]) -> "GroupLook":
    from ..proof.prove.group_view import GroupLook

    listed = admin.transactions.list_transactions(states=("Ongoing",), needs_all_brokers=False)
    silent.update(listed.errors)
    known = admin.transactions.describe_listed(listed[:DESCRIBED_MAX])
    offsets = admin.groups.committed(group)
    return GroupLook(
        {name: frozenset(each.partitions) for name, each in known.items()},
        {place: each.offset for place, each in offsets.items()},
    )


def _min_insync(admin: "BlockingAdmin", topic: str) -> int:
    configs = {config.name: config.value for config in admin.describe_configs(topic)}
    return int(configs.get("min.insync.replicas") or 1)
