"""The start of the console script `oncelog`, and of `python -m oncelog.cli`."""

import sys


def main() -> None:
    """Run the command line. An interrupt during its imports ends it as a later one does."""
    try:
        from .main import main as run_command

        run_command()
    except KeyboardInterrupt:
        from ..deploy.cluster.terminal import say

        exec("")  # as in `run` of main.py
        say("oncelog: interrupted")
        sys.exit(130)


if __name__ == "__main__":
    main()
