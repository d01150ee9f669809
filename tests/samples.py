"""Plain values that tests start from, and change where it matters."""

from typing import Any

from msgspec.structs import replace

from remit.protocol.card import AgentCard
from remit.protocol.envelope import VERSION, Request, Response
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Remit

_REMIT = Remit(user="u-1", depth=1, max_depth=5, time_ms=10_000, tokens=1_000, chain=("prime@hub",))
_REQUEST = Request(
    version=VERSION, id="r-1", origin="prime", target="tag", run="run-1", objective="Categorize", remit=_REMIT
)
_RESPONSE = Response(version=VERSION, id="r-1", target="tag", status=Status.SUCCESS, result="3 categories")
_CARD = AgentCard(name="tag")


def a_remit(**changes: Any) -> Remit:
    """What tag works under when prime has asked it."""
    return replace(_REMIT, **changes)


def a_request(**changes: Any) -> Request:
    """Prime asks tag to categorize."""
    return replace(_REQUEST, **changes)


def a_response(**changes: Any) -> Response:
    """Tag has done so."""
    return replace(_RESPONSE, **changes)


def a_card(**changes: Any) -> AgentCard:
    """What tag says of itself."""
    return replace(_CARD, **changes)
