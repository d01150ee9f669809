"""Log messages for an MCP host: what happens in a run that its user watches."""

from typing import Literal

from msgspec import Struct

from remit.protocol.envelope import Request, Response
from remit.protocol.records import Approval, Kind, Notice, Record, Refusal, ToolUse, outward

Level = Literal["debug", "info", "notice", "warning"]


class LogLine(Struct, frozen=True, kw_only=True):
    """One message."""

    level: Level
    run: str
    text: str

    @property
    def data(self) -> dict[str, str]:
        return {"run": self.run, "message": self.text}


def log_line(record: Record) -> LogLine | None:
    """Return what a host hears of a record; None: nothing. Progress has notifications of its own."""
    level, text = _worded(outward(record))
    return None if level is None else LogLine(level=level, run=record.run, text=text)


def _worded(record: Record) -> tuple[Level | None, str]:
    match record.body:
        case Notice(agent=agent, text=text, code=code):
            return "notice" if code is None else "warning", f"{agent}: {text}"
        case Refusal(request=request, response=response):
            why = response.fault
            told = "" if why is None else f": {why.code}: {why.message}"
            return "warning", f"{request.origin} could not call {request.target}{told}"
        case Approval(agreed=None, question=question):
            return "notice", f"a person is asked: {question}"
        case Approval(agreed=agreed, by=by, question=question):
            return "notice", f"{'approved' if agreed else 'declined'} by {by}: {question}"
        case ToolUse(agent=agent, tool=tool, fault=None, begun=False):
            return "debug", f"{agent} used {tool}"
        case ToolUse(agent=agent, tool=tool, fault=why) if why is not None:
            return "warning", f"{agent} could not use {tool}: {why.code}: {why.message}"
        case Request(origin=origin, target=target) if record.kind is Kind.DELEGATION:
            return "info", f"{origin} called {target}"
        case Response(target=target, status=status):
            return "info", f"{target} ended: {status}"
        case _:
            return None, ""
