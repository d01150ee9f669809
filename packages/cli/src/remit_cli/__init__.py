"""The remit command and the team file: data on stdout, progress on stderr, the outcome in the exit code."""

from typing import TYPE_CHECKING

from remit.protocol.lazy_names import lazy_names

_HOMES = {
    "remit.protocol.problems": ("WrongPart",),
    "remit_cli.config.checks": ("secret_of",),
    "remit_cli.config.composition": ("hub_of",),
    "remit_cli.config.load": ("load_team",),
    "remit_cli.config.rules": ("Rule", "guard_of"),
    "remit_cli.config.team": ("TeamHubs", "TeamSection"),
    "remit_cli.config.values": ("Secret", "Section"),
    "remit_cli.main": ("main",),
    "remit_cli.places": ("DraftBox",),
    "remit_server.documents.team": ("Check",),
    "remit_server.documents.verdicts": ("Placing",),
}

if TYPE_CHECKING:
    from remit.protocol.problems import WrongPart as WrongPart
    from remit_cli.config.checks import secret_of as secret_of
    from remit_cli.config.composition import hub_of as hub_of
    from remit_cli.config.load import load_team as load_team
    from remit_cli.config.rules import Rule as Rule
    from remit_cli.config.rules import guard_of as guard_of
    from remit_cli.config.team import TeamHubs as TeamHubs
    from remit_cli.config.team import TeamSection as TeamSection
    from remit_cli.config.values import Secret as Secret
    from remit_cli.config.values import Section as Section
    from remit_cli.main import main as main
    from remit_cli.places import DraftBox as DraftBox
    from remit_server.documents.team import Check as Check
    from remit_server.documents.verdicts import Placing as Placing
else:
    __getattr__ = lazy_names(__name__, _HOMES)
