"""The command line `oncelog`, with the commands in the files of this folder.

These files follow three rules. Modules that are slow to import are imported inside functions, so
`oncelog --help` is fast. Results go to stdout, and progress to stderr. A problem is one sentence on
stderr (what, why, what next) and an exit code. The code is 1 for a failure, 2 for wrong usage, 3
for a run that proved nothing, 130 for an interrupt.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import App, Group, Parameter

from ..deploy.cluster.advice import one_command
from ..deploy.cluster.ends.interrupts import ended_as_by_ctrl_c
from ..deploy.cluster.failure import Failure, told_by_system
from ..deploy.cluster.terminal import closable, say, terminal_width
from ..wire.printable import printable
from . import (
    bench,
    chaos,
    check,
    clock,
    cluster,
    data,
    groups,
    inject,
    observe,
    profile,
    prove,
    topics,
    transactions,
)
from .look import events, metrics, page
from .proof import certify, conformance, lesson
from .security import acls

GROUPS = {
    "Life of a cluster": ("up", "ps", "env", "doctor", "logs", "down", "node", "clock"),
    "Faults": (
        "kill",
        "stop",
        "start",
        "restart",
        "pause",
        "resume",
        "partition",
        "slow",
        "heal",
    ),
    "Data": ("topic", "produce", "consume", "group", "acl", "log"),
    "To look at": ("ui", "top", "events", "metrics", "lesson"),
    "Transactions": ("why", "txn"),
    "Proof": ("prove", "certify", "observe", "inject", "chaos", "check", "conformance"),
    "Figures": ("demo", "bench"),
    "This program": ("profile", "completion", "help"),
}
TABLE_WIDTH_MIN = 70  # in the help, option names are beside their texts
Shell = Literal["bash", "zsh", "fish"]


def build(width: int | None = None) -> App:
    """Build the command tree. `width` is the number of columns for the help."""
    from ..version import __version__

    app = App(
        suppress_keyboard_interrupt=False,  # `run` says so
        name="oncelog",
        help="A replicated, exactly-once log cluster that any Kafka client can use.",
        version=__version__,
        result_action="return_value",
        help_formatter="plain" if width is not None and width < TABLE_WIDTH_MIN else None,
    )
    for family in (
        cluster, clock, topics, groups, acls, transactions, data, bench, check, chaos, inject,
        observe, prove, certify, profile, conformance, lesson, page, metrics,
        events,
    ):  # fmt: skip
        family.register(app)

    @app.command
    def help(*command: Annotated[str, Parameter(help="The name of a command.")]) -> None:
        """Show the commands by purpose, or the options of one command."""
        app.help_print(list(command))

    @app.command
    def completion(shell: Annotated[Shell, Parameter(help="The name of the shell.")], /) -> None:
        """Print a completion script for a shell: eval "$(oncelog completion bash)"."""
        print(printable(app.generate_completion(shell=shell), keep="\n\t"))

    for number, (title, verbs) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=number)
        for verb in verbs:
            app[verb].group = (group,)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the console script and exit with its exit code."""
    for name in ("stdin", "stdout", "stderr"):  # closed (`>&-`) they are None, and their numbers
        if getattr(sys, name) is None:  # would be those of the next files and connections
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with one_command(), ended_as_by_ctrl_c():
            result = build(terminal_width(sys.stdout))(given, exit_on_error=True)
    except Failure as failure:
        return _complain(failure.exit_code, *str(failure).split("\n"))
    except KeyboardInterrupt:
        exec("")  # Python forgets an interrupt within an exec, which would be its exit status
        return _complain(130, "interrupted")
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 0
    except OSError as problem:
        words = told_by_system(problem)
        if words is None:
            raise
        return _complain(1, words)
    except Exception as problem:
        from ..wire.errors import KafkaError

        if not isinstance(problem, KafkaError):
            raise
        return _complain(1, str(problem))
    return result if isinstance(result, int) else 0


def _complain(exit_code: int, sentence: str, *more: str) -> int:
    with closable(sys.stderr):
        say(f"oncelog: {sentence}", *more)
    return exit_code
