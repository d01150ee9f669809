"""`python -m remit.cli`: the command line where no `remit` is on the path."""

from remit.cli.main import main

main()
