"""`remit doctor`: check this machine and this folder, and suggest fixes."""

import click

from remit_cli.options import GivenStore, json_option, store_options


@click.command()
@click.option("--all", "shows_all", is_flag=True, help="Show every check, also those that found nothing to do.")
@store_options
@json_option
def doctor(shows_all: bool, given: GivenStore, as_json: bool) -> None:
    """Check this machine and this folder for problems, and suggest fixes.

    Checks Python, the packages, the console's page, the team file and its dependencies, the hubs of `[peers.NAME]`, the
    store with its disk, keys and clock, pending questions, and the terminal. What needs doing comes first; what is fine
    is one line for each group of checks. Nothing is changed. The exit code is 0 if there is no problem and 3 if there
    is one. Warnings do not change the exit code.

    \b
    Example:
      remit doctor
      remit doctor --all
      remit doctor --json
    """
    from remit_cli.doctor_checks import examine, print_checkup
    from remit_cli.show.screen import print_json
    from remit_server.documents.team import Checkup

    checks = tuple(examine(*given))
    found = Checkup(ok=not any(each.state == "problem" for each in checks), checks=checks)
    if as_json:
        print_json(found)
    else:
        print_checkup(found, shows_all=shows_all)
    raise SystemExit(0 if found.ok else 3)
