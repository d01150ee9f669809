"""Repairs that can be taken out again, each with a scenario in which the simulation must notice that."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from remit.ports import Question
from remit.ports.store import unknown_outcome
from remit.protocol.envelope import Request, Response, Usage
from remit.protocol.errors import Fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Body, Kind
from remit.runtime import approvers
from remit.runtime.delegation import replay, response
from remit.runtime.delegation.admission import Admission
from remit.runtime.delegation.approval import Approvals
from remit.runtime.journal import JournalStep
from remit.runtime.root_runs import RootRecords
from remit_cluster.nats.agent import BusAgent
from remit_cluster.nats.cancels import BusCancels
from remit_testing.memory import MemoryStore
from simulate.plan import ClientOrder, PlannedFault, PlannedWork, Scenario


class Mutation(NamedTuple):
    """A repair: how it is taken out, where that shows, and the words of the violation."""

    takes_out: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario
    fault: PlannedFault
    """It strikes at each place in turn."""
    violation: str


def _order(root: PlannedWork, tokens: int) -> ClientOrder:
    return ClientOrder("order-0", root, tokens, 0.4, 0)


def _work(
    number: int, agent: str, *waves: tuple[PlannedWork, ...], seconds: float = 0.3, tokens: int = 0
) -> PlannedWork:
    return PlannedWork(f"o0n{number}", agent, seconds, tokens, agrees=number != 0, waves=waves)


def _repeat_every_remote_callee(patch: pytest.MonkeyPatch) -> None:
    async def is_resumable(self: BusAgent, within_s: float) -> bool:
        return True

    patch.setattr(BusAgent, "is_resumable", is_resumable)


def _refuse_what_is_unknown(patch: pytest.MonkeyPatch) -> None:
    def refused(request: Request, why: Fault) -> Response:
        return replace(unknown_outcome(request, why), status=Status.REFUSED, usage=Usage())

    patch.setattr(response, "unknown_outcome", refused)


def _decline_without_the_store(patch: pytest.MonkeyPatch) -> None:
    async def once(act: Callable[[], Awaitable[Any]], question: str) -> Any:
        return await act()

    patch.setattr(approvers, "outlasting", once)


def _forget_a_no(patch: pytest.MonkeyPatch) -> None:
    keeping = RootRecords.refuse

    async def refuse(self: RootRecords, request: Request, why: Fault, *, keep: bool = False) -> Response:
        return await keeping(self, request, why)

    patch.setattr(RootRecords, "refuse", refuse)


def _forget_a_yes(patch: pytest.MonkeyPatch) -> None:
    async def forget(self: Approvals, request: Request, question: str) -> None: ...

    patch.setattr(Approvals, "remember_yes", forget)


def _write_whatever_comes(patch: pytest.MonkeyPatch) -> None:
    append = MemoryStore.append

    def unfenced(self: MemoryStore, kind: Kind, at_ms: int, run: str, session: str, body: Body, epoch: int = 0) -> None:
        append(self, kind, at_ms, run, session, body)

    patch.setattr(MemoryStore, "append", unfenced)


def _hear_no_cancel(patch: pytest.MonkeyPatch) -> None:
    async def ignore(self: BusCancels, message: object) -> None: ...

    patch.setattr(BusCancels, "_receive_order", ignore)


def _forget_what_began_before(patch: pytest.MonkeyPatch) -> None:
    def doubt_about(before: JournalStep, entry: object, question: str | None) -> str:
        return "" if before.departed is None else "it was sent"

    patch.setattr(replay, "doubt_about", doubt_about)


def _carry_no_approvals(patch: pytest.MonkeyPatch) -> None:
    def unchanged(self: Admission, clean: Request, entry: object, questions: object) -> Request:
        return clean

    patch.setattr(Admission, "with_approvals", unchanged)


def _ask_as_nobody_did(patch: pytest.MonkeyPatch) -> None:
    async def unchanged(self: Approvals, question: Question, run: object) -> Question:
        return question

    patch.setattr(Approvals, "_as_put_before", unchanged)


_EVERYONE = frozenset({"boss", "clerk", "till", "shelf", "safe"})
_TILL = _work(1, "till", tokens=45)
MUTATIONS = {
    "own-card": Mutation(
        _repeat_every_remote_callee,
        Scenario(
            (frozenset({"boss", "till"}), frozenset({"boss"}), frozenset({"till"})),
            (_order(_work(0, "boss", (_TILL,)), 100),),
        ),
        PlannedFault("kill", 0),
        "was executed 2 times",
    ),
    "unknown-failed": Mutation(
        _refuse_what_is_unknown,
        Scenario(
            (_EVERYONE,),
            (_order(_work(0, "boss", (_TILL, _work(2, "till", tokens=45)), (_work(3, "till", tokens=45),)), 120),),
        ),
        PlannedFault("kill", 1),
        "spent 135 tokens of 120",
    ),
    "patient-questions": Mutation(
        _decline_without_the_store,
        Scenario((_EVERYONE,), (_order(_work(0, "boss", (_work(1, "safe"),)), 100),)),
        PlannedFault("away", 1.5),
        "was declined, and not by the person",
    ),
    "kept-no": Mutation(
        _forget_a_no,
        Scenario((_EVERYONE,), (_order(_work(0, "safe"), 100),)),
        PlannedFault("bus", 0.3),
        "the person was asked 2 times",
    ),
    "kept-yes": Mutation(
        _forget_a_yes,
        Scenario((_EVERYONE, frozenset({"till"})), (_order(_work(1, "safe", tokens=45), 100),)),
        PlannedFault("close", 12),
        "the person was asked 2 times",
    ),
    "approved-once": Mutation(
        _carry_no_approvals,
        Scenario(
            (frozenset({"boss"}), frozenset({"safe"})), (_order(_work(0, "boss", (_work(1, "safe", tokens=45),)), 100),)
        ),
        PlannedFault("bus", 0.3),
        "the person was asked 2 times",
    ),
    "asked-elsewhere": Mutation(
        _ask_as_nobody_did,
        Scenario(
            (frozenset({"boss", "clerk", "safe"}), frozenset({"boss"}), frozenset({"clerk", "safe"})),
            (_order(_work(0, "boss", (_work(1, "clerk", (_work(2, "safe", tokens=45),)),)), 100),),
        ),
        PlannedFault("close", 12),
        "the person was asked 2 times",
    ),
    "fenced-records": Mutation(
        _write_whatever_comes,
        Scenario((_EVERYONE, _EVERYONE), (_order(_work(0, "boss", (_TILL,), (_work(2, "till", tokens=45),)), 200),)),
        PlannedFault("pause", 12),
        "which it does not have",
    ),
    "cancel-over-bus": Mutation(
        _hear_no_cancel,
        Scenario(
            (frozenset({"boss"}), frozenset({"till"})),
            (_order(_work(0, "boss", (_work(1, "till", seconds=2.0, tokens=45),)), 200),),
        ),
        PlannedFault("stranded", 3),
        "s after order-0 was cancelled",
    ),
    "earlier-doubt": Mutation(
        _forget_what_began_before,
        Scenario(
            (frozenset({"boss", "clerk"}), frozenset({"boss"})), (_order(_work(0, "boss", (_work(1, "clerk"),)), 200),)
        ),
        PlannedFault("kill", 20),
        "is reported as refused (DELEGATION_UNAVAILABLE), and had begun",
    ),
}
