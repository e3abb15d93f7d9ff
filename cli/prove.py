"""`oncelog prove` finds out if an application, in any language, is exactly once."""

import random
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.terminal import say, tell
from .common import Format, check_bootstrap, judging, pairs, print_report

Topics = list[str] | None


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    app.command(prove)


def prove(
    *command: Annotated[
        str, Parameter(help="The command of the application, after --.", allow_leading_hyphen=True)
    ],
    inputs: Annotated[
        Topics,
        Parameter(
            name="--in",
            help="A topic that the application reads. The option may be repeated.",
            negative=(),
        ),
    ] = None,
    outputs: Annotated[
        Topics,
        Parameter(
            name="--out",
            help="A topic that the application writes. The option may be repeated.",
            negative=(),
        ),
    ] = None,
    instances: Annotated[
        int,
        Parameter(name=["--instances", "-n"], help="The number of processes of the application."),
    ] = 2,
    seconds: Annotated[
        float, Parameter(help="The time during which faults are injected, in seconds.")
    ] = 20.0,
    rate: Annotated[float, Parameter(help="The number of inputs per second.")] = 100.0,
    seed: Annotated[
        int | None, Parameter(help="Repeat the faults of the run with this seed.")
    ] = None,
    partitions: Annotated[int, Parameter(help="The number of partitions of new topics.")] = 4,
    bootstrap: Annotated[
        str | None,
        Parameter(
            help="HOST:PORT,... of any Kafka, instead of a new cluster.",
            validator=check_bootstrap,
        ),
    ] = None,
    command_config: Annotated[
        Path | None,
        Parameter(help="Read TLS and SASL settings for --bootstrap from this client.properties."),
    ] = None,
    secure: Annotated[
        bool,
        Parameter(help="Use a cluster with TLS and logins, as `oncelog up --secure`.", negative=()),
    ] = False,
    match: Annotated[
        str,
        Parameter(
            help="The place of the input's id in an output: key, header:NAME, json:FIELD "
            "or regex:RE."
        ),
    ] = "key",
    fanout: Annotated[int, Parameter(help="The number of outputs for each input.")] = 1,
    expect: Annotated[
        str | None,
        Parameter(help="A module:function that returns the ids of all outputs for all inputs."),
    ] = None,
    final: Annotated[
        str | None,
        Parameter(help="A module:function that returns the last value of each key for all inputs."),
    ] = None,
    feed: Annotated[
        str | None,
        Parameter(
            help="A module:function that returns the (key, value) of an input for its (number, id)."
        ),
    ] = None,
    sink: Annotated[
        str | None,
        Parameter(
            help="Judge the rows of a database table, e.g. "
            "sqlite:///FILE?table=T&id=COLUMN or postgresql://..."
        ),
    ] = None,
    faults: Annotated[
        str | None,
        Parameter(help="Make only these faults, separated by commas; `help` lists them."),
    ] = None,
    as_is: Annotated[
        bool, Parameter(help="Do not shorten session and transaction timeouts.", negative=())
    ] = False,
    alone: Annotated[
        bool,
        Parameter(help="Start no second instance; needs --instances 1.", negative=()),
    ] = False,
    no_aborts: Annotated[
        bool, Parameter(help="Add no aborted transactions to the input topics.", negative=())
    ] = False,
    env: Annotated[
        list[str] | None,
        Parameter(help="A variable of the application's environment as NAME=VALUE.", negative=()),
    ] = None,
    start: Annotated[
        float, Parameter(help="The time in seconds until the application must process inputs.")
    ] = 40.0,
    drain: Annotated[
        float,
        Parameter(
            help="The time in seconds in which the application must finish after the faults."
        ),
    ] = 60.0,
    shrink: Annotated[
        bool,
        Parameter(help="Find the smallest set of faults that breaks the application.", negative=()),
    ] = False,
    keep: Annotated[
        Path | None,
        Parameter(help="Keep the report, the outcome and the logs in this new directory."),
    ] = None,
    junit: Annotated[
        Path | None,
        Parameter(
            help="Write JUnit XML with one test to this file. A failed test has the outcome."
        ),
    ] = None,
    format: Format = "table",
) -> int:
    """Feed an application with inputs, inject faults at its requests, and judge its outputs.

    The application gets KAFKA_BOOTSTRAP_SERVERS, ONCELOG_IN, ONCELOG_OUT, ONCELOG_INSTANCE in its
    environment. {bootstrap}, {in}, {out} and {instance} are replaced in its arguments. The command
    starts a cluster for the run. With --bootstrap it uses that cluster, and injects no faults into
    its brokers. With --secure or --command-config, ONCELOG_CLIENT_CONFIG and {client} name a file
    of client settings. ONCELOG_JAVA_CONFIG and {java} name a file for Java's client.

    The exit code is 0 for exactly once, 1 for a violation, 2 if the application never worked, and 3
    if nothing is proved.
    """
    from ..proof.prove.api import shrunk
    from ..proof.prove.page import junit_of, keep_outcome
    from ..proof.prove.plan import FAULTS
    from ..proof.prove.run import Run
    from ..proof.prove.settings import ProveSettings
    from ..storage.checkpoint import write_atomically

    if faults == "help":
        tell(*FAULTS)
        return 0
    if not command:
        raise Failure("Say what to run: oncelog prove --in A --out B -- COMMAND", exit_code=2)
    if junit is not None and not junit.absolute().parent.is_dir():
        raise Failure(f"--junit {junit} lies in no directory that there is.", exit_code=2)
    chosen = seed if seed is not None else random.SystemRandom().randrange(1_000_000)
    settings = ProveSettings(
        command=command, inputs=tuple(inputs or ("prove-in",)),
        outputs=tuple(outputs or (() if sink else ("prove-out",))), instances=instances,
        seconds=seconds, rate=rate, seed=chosen, partitions=partitions, bootstrap=bootstrap,
        command_config=None if command_config is None else str(command_config),
        secure=secure, match=match, fanout=fanout, expect=expect, final=final, feed=feed, sink=sink,
        faults=faults, as_is=as_is, alone=alone, aborts=not no_aborts,
        start_timeout_s=start, drain_timeout_s=drain, environment=pairs(env),
    )  # fmt: skip
    with judging():
        say(f"seed {chosen}")
        outcome = Run(settings, keep, say).go()
        if keep is not None:
            keep_outcome(outcome, keep)
        if junit is not None:
            write_atomically(junit, junit_of(outcome).encode())
    print_report(outcome.as_fields(), outcome.lines(), format)
    if shrink and outcome.judgement.is_violated:
        with judging():
            found = shrunk(outcome, say)
        print_report(
            {"faults": found}, [f"the fewest faults that break it: --faults {found}"], format
        )
    return outcome.exit_code
