"""`oncelog`: the command line. Commands live in the files beside this one.

Rules of these files. Nothing slow is imported before a command runs: `oncelog --help` must feel
instant, so functions import what they need. Results go to stdout, words about progress to stderr.
A problem is one sentence on stderr (what, why, what next) and an exit code: 1 it did not work, 2 it
was called wrongly, 3 the demo proved nothing, 130 interrupted.
"""

import sys
from collections.abc import Sequence

from cyclopts import App

from ..cluster.failure import Failure
from ..cluster.terminal import say
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
    prove,
    topics,
    transactions,
)


def build() -> App:
    """The command tree."""
    from ... import __version__

    app = App(
        suppress_keyboard_interrupt=False,  # `run` says so
        name="oncelog",
        help="A replicated, exactly-once log cluster that any Kafka client can use.",
        version=__version__,
        result_action="return_value",
    )
    for family in (
        cluster, clock, topics, groups, transactions, data, bench, check, chaos, inject, observe,
        prove,
    ):  # fmt: skip
        family.register(app)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script; leaves with the exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code comes back."""
    try:
        result = build()(list(sys.argv[1:] if arguments is None else arguments), exit_on_error=True)
    except Failure as failure:
        return _complain(failure.exit_code, *str(failure).split("\n"))
    except KeyboardInterrupt:
        return _complain(130, "interrupted")
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 0
    except Exception as problem:
        from ...wire.errors import KafkaError

        if not isinstance(problem, KafkaError):
            raise
        return _complain(1, str(problem))
    return result if isinstance(result, int) else 0


def _complain(exit_code: int, sentence: str, *more: str) -> int:
    say(f"oncelog: {sentence}", *more)
    return exit_code
