"""The remit command and the team file: data on stdout, progress on stderr, the outcome in the exit code."""

from typing import TYPE_CHECKING

from remit.protocol.lazy_names import lazy_names

_HOMES = {
    "remit_cli.config.composition": ("hub_of",),
    "remit_cli.config.load": ("load_team",),
    "remit_cli.config.rules": ("Rule", "guard_of"),
    "remit_cli.main": ("main",),
}

if TYPE_CHECKING:
    from remit_cli.config.composition import hub_of as hub_of
    from remit_cli.config.load import load_team as load_team
    from remit_cli.config.rules import Rule as Rule
    from remit_cli.config.rules import guard_of as guard_of
    from remit_cli.main import main as main
else:
    __getattr__ = lazy_names(__name__, _HOMES)
