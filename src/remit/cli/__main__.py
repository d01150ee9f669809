"""`python -m remit.cli`: the command line without the `remit` script."""

from remit.cli.main import main

main()
