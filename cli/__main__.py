"""`python -m oncelog.cli` runs the command line without its console script."""

from .main import main

main()
