"""Plain values that tests start from, and change where it matters."""

from typing import Any

from msgspec.structs import asdict, replace

from remit.policy.verdict import Verdict
from remit.protocol.card import AgentCard
from remit.protocol.envelope import VERSION, Call, Request, Response
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Delegation
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


def code_of(outcome: Response | Delegation | Verdict) -> Code | None:
    """Why it was refused or failed; None: it was not."""
    why = getattr(outcome, "fault", None)
    return why.code if why else None


def arguments_of(call: Call) -> dict[str, Any]:
    """What a call says, as the arguments of `brief.delegate`."""
    return {name: value for name, value in asdict(call).items() if value != getattr(Call(), name)}
