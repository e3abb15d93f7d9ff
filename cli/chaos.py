"""`oncelog chaos` injects faults into a cluster under load, and judges the result."""

import itertools
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.terminal import never_silent, tell
from .common import Format, add_family, judging, print_report, require

DID_NOT_HIT = 3
ASSIGNORS = ("range", "cooperative-sticky")  # the seed chooses, also the group's protocol
Out = Annotated[Path | None, Parameter(help="The directory for the run, which must be empty.")]


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    add_family(
        app,
        "chaos",
        "Inject faults into a cluster under load, and judge the results.",
        run,
        replay,
        report,
    )


def run(
    *,
    seconds: Annotated[
        float, Parameter(help="The time during which faults are injected, in seconds.")
    ] = 90.0,
    seed: Annotated[int, Parameter(help="The seed of the schedule and of the load.")] = 1,
    out: Out = None,
    nodes: Annotated[
        int, Parameter(name=["--nodes", "-n"], help="The number of nodes: 3, 4 or 5.")
    ] = 3,
    faults: Annotated[
        str | None,
        Parameter(
            help="Inject only these kinds of faults, separated by commas. `help` lists the kinds."
        ),
    ] = None,
    rate: Annotated[float, Parameter(help="The intended number of faults in a minute.")] = 24.0,
    workers: Annotated[int, Parameter(help="The number of processes with oncelog's client.")] = 2,
    confluent: Annotated[int, Parameter(help="The number of processes with confluent-kafka.")] = 1,
    pause: Annotated[
        int, Parameter(help="The average time between two operations of a client in ms.")
    ] = 20,
    secure: Annotated[
        bool, Parameter(help="Use a cluster with TLS and logins, as `up --secure`.", negative=())
    ] = False,
    keep: Annotated[bool, Parameter(help="Keep the nodes' data.", negative=())] = False,
    format: Format = "table",
) -> int:
    """Start a cluster with a load, inject the faults of a seed, and judge the recorded run.

    The exit code is 1 if a promise was broken, and 2 if the run itself failed. It is 3 if at most
    half of the faults had a visible effect, because such a run proves nothing.
    """
    from ..deploy.faults.schedule import ALL_KINDS, KINDS, SECURED_KINDS
    from ..proof.chaos.load.settings import GROUPS, LoadSettings
    from ..proof.chaos.plan_settings import RunSettings

    if faults == "help":
        tell(*ALL_KINDS)
        return 0
    possible = SECURED_KINDS if secure else KINDS
    kinds = tuple(name.strip() for name in faults.split(",")) if faults else possible
    if unknown := set(kinds) - set(ALL_KINDS):
        raise Failure(
            f"There is no fault {', '.join(sorted(unknown))}; see: oncelog chaos run --faults help",
            exit_code=2,
        )
    if impossible := set(kinds) - set(possible):
        why = "Not with --secure, as requests are encrypted" if secure else "Only with --secure"
        raise Failure(f"{why}: {', '.join(sorted(impossible))}.", exit_code=2)
    if not 3 <= nodes <= 5 or not seconds > 0 or not 0 < rate <= 600:
        raise Failure("Chaos needs 3 to 5 nodes, some seconds, and a rate up to 600.", exit_code=2)
    load = LoadSettings(
        pause_ms=pause,
        assignor=ASSIGNORS[seed // 2 % len(ASSIGNORS)],
        consumer_groups=(GROUPS[seed % len(GROUPS)],),
        visitors=2,
    )
    settings = RunSettings(
        seconds=seconds,
        seed=seed,
        nodes=nodes,
        faults_per_minute=rate,
        workers=workers,
        confluent_workers=confluent,
        kinds=kinds,
        keeps_data=keep,
        is_secured=secure,
        load=load,
    )
    return _go(settings, out or Path(f"chaos-{seed}"), format)


@judging()
def replay(
    directory: Annotated[Path, Parameter(help="The directory of a run.")],
    /,
    *,
    out: Out = None,
    format: Format = "table",
) -> int:
    """Repeat a run with the same seed, settings and schedule, in a new directory."""
    from ..proof.chaos.run import settings_of

    settings = settings_of(directory)
    names = (directory.with_name(f"{directory.name}-replay-{n}") for n in itertools.count(1))
    return _go(settings, out or next(name for name in names if not name.exists()), format)


def report(
    directory: Annotated[Path, Parameter(help="The directory of a run.")],
    /,
    *,
    html: Annotated[
        Path | None, Parameter(help="The file to write. The default is DIR/report.html.")
    ] = None,
) -> None:
    """Judge a run again, and write its page with the verdict, rates, latency and faults."""
    require("check", "numpy", "pyarrow")
    from ..proof.chaos.report import write_report

    tell(str(write_report(directory, html)))


@judging()
def _go(settings: Any, out: Path, output: str) -> int:
    clients = ["confluent_kafka"] if settings.confluent_workers else []
    require("check,demo", "numpy", "pyarrow", *clients)
    from ..proof.chaos.report import write_report
    from ..proof.chaos.run import ChaosRun
    from ..proof.chaos.verdict import fields, judge_run, words

    with never_silent() as told:
        one = ChaosRun(out, settings, told)
        outcome = one.go()
        told("judging")
        verdict = judge_run(one.out)
        write_report(one.out, verdict=verdict)
    is_clean = verdict.is_clean and outcome.is_clean
    if is_clean and not settings.keeps_data:
        one.remove_data()
    judged = (one.out, settings, outcome, verdict)
    print_report(fields(*judged), words(*judged), output)
    if not is_clean:
        return 1
    return 0 if outcome.has_hit else DID_NOT_HIT
