"""`python -m remit_cli`: the command line without the `remit` script."""

from remit_cli.main import main

main()
