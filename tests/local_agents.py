"""What tests of local agents share: requests, programs, and processes that are there or gone."""

import sys
from pathlib import Path
from typing import Any

from programs import is_alive
from remit.agents.program import Program
from remit_relay.bridge.ports import Draft, DraftFailure, PromptConstraints, PromptRequest
from remit_relay.bridge.supervised_agent import SupervisedAgent
from waiting import PATIENCE_S, eventually

TESTS = Path(__file__).resolve().parent
ROGUE = str(TESTS / "rogue.py")
BOUND_S = PATIENCE_S


def rogue(how: str, *files: Path, **options: Any) -> Program:
    return Program(command=sys.executable, args=(ROGUE, how, *map(str, files)), **options)


def request(number: int = 1, **changed: Any) -> PromptRequest:
    """Return a request; what is no field of it is a constraint."""
    names = PromptConstraints.__struct_fields__
    constraints = PromptConstraints(**{name: changed.pop(name) for name in names if name in changed})
    given: dict[str, Any] = {
        "request_id": f"r-{number}",
        "profile_id": "p-1",
        "session_id": "s-1",
        "turn_index": number,
        "mode": "manual",
        "objective": "Review this API",
        "constraints": constraints,
    }
    return PromptRequest(**{**given, **changed})


def drafted(outcome: Draft | DraftFailure) -> str:
    assert isinstance(outcome, Draft), outcome
    return outcome.text


def failed(outcome: Draft | DraftFailure, *, hard: bool) -> str:
    assert isinstance(outcome, DraftFailure), outcome
    assert outcome.hard is hard, outcome
    return outcome.reason


async def gone(*pids: int) -> None:
    await eventually(lambda: not any(map(is_alive, pids)))


async def down(agent: SupervisedAgent) -> None:
    """Return once the host has noticed that an agent's process has ended."""
    await eventually(lambda: (link := agent._link) is None or not link.is_up)  # pyright: ignore[reportPrivateUsage]


async def noted(file: Path, lines: int = 1) -> list[str]:
    """Return what was noted down in a file, once it is that many lines."""
    await eventually(lambda: file.exists() and len(file.read_text().splitlines()) >= lines)
    return file.read_text().splitlines()
