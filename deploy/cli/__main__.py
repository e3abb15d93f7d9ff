"""`python -m oncelog.deploy.cli`: the command line without its console script."""

from .main import main

main()
