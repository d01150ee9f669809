"""The notifications that a team file asks for."""

import os
from collections.abc import Mapping

from remit.runtime.registry import team_invalid
from remit_cli.config.checks import secret_of
from remit_cli.config.team import Team
from remit_redaction.pipeline import detector_pipeline
from remit_relay.notifier import Deliver, Notifier, to_desktop, to_program, to_webhook
from remit_relay.session.run import CredentialFilter
from remit_relay.team.section import RELAY

# Beside the store.
TOLD_FILE = "notified"


def notifier_of(team: Team, environ: Mapping[str, str] = os.environ) -> Notifier | None:
    """Return the notifications of `[relay.notify]`; None: there are none.

    Raises a `RemitError` if the variable of a secret is not set.
    """
    relay = RELAY.of(team)
    said = relay and relay.notify
    if not said:
        return None
    deliverers: list[Deliver] = [to_desktop()] if said.desktop else []
    if said.command is not None:
        deliverers.append(to_program(said.command, team.folder))
    if said.webhook is not None:
        try:
            secret = secret_of(said.secret, environ) if said.secret else ""
        except ValueError as error:
            raise team_invalid(str(error)) from error
        deliverers.append(to_webhook(said.webhook, secret))
    if not deliverers:
        return None
    told = team.store_path.parent / TOLD_FILE
    return Notifier(deliverers, told, CredentialFilter(detector_pipeline()).run, texts=said.texts)
