"""`python -m remit.faces.cli`: the command line where no `remit` is on the path."""

from remit.faces.cli.main import main

main()
