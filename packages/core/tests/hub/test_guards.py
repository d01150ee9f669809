"""Guards of the team's own: they let pass, rewrite, refuse or ask, and when in doubt nothing passes."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from remit import (
    ALLOW,
    Ask,
    Brief,
    Capability,
    Code,
    Facts,
    Guard,
    Hub,
    Limits,
    Refusal,
    Refuse,
    Request,
    Response,
    Rewrite,
    Status,
    Verdict,
    fault,
)
from remit.ports import Approver, Question


class Team:
    """Two agents, `a` that asks `b`, and what happened to them."""

    def __init__(self, make_hub: Callable[..., Hub], guard: Guard, approver: Approver | None = None) -> None:
        self.hub = make_hub(guards=[guard], approver=approver, limits=Limits(approval_timeout_ms=50))
        self.ran: list[object] = []
        self.replies: list[Response] = []
        self.hub.agent("b", capabilities=["DO"])(self._b)
        self.hub.agent("a", may_call=["b"])(self._a)

    async def _b(self, brief: Brief) -> str:
        self.ran.append(brief.input)
        return f"did {brief.input}"

    async def _a(self, brief: Brief) -> object:
        self.replies.append(await brief.delegate("b", objective="pay", input="100 to bob"))
        return self.replies[-1].result

    async def reply(self) -> Response:
        """Return what `a` is answered when it asks `b`."""
        response = await self.hub.ask("a", user="u-1")
        assert response.ok, response.fault
        return self.replies[-1]


def on_b(verdict: Callable[[Request, Facts], Verdict]) -> Guard:
    """Return the guard that applies *verdict* to requests for `b` and lets all others pass."""
    return lambda request, facts: verdict(request, facts) if request.target == "b" else ALLOW


def code_of(response: Response) -> tuple[Status, Code | None]:
    return response.status, response.fault.code if response.fault else None


async def test_a_guard_can_refuse_and_its_reason_reaches_the_caller(make_hub: Callable[..., Hub]) -> None:
    """C6: the refusal is recorded, and the callee never runs."""
    no = fault(Code.PERMISSION_DENIED, "no payments on sundays", suggestion="Ask on monday.")
    team = Team(make_hub, on_b(lambda request, facts: Refuse(no)))
    async with team.hub as hub:
        reply = await team.reply()
        root = await hub.ask("b", user="u-1")
        records = await hub.store.records(run=reply.run)
    assert (reply.status, reply.fault, root.status, root.fault) == (Status.REFUSED, no, Status.REFUSED, no)
    assert [each.body.response.fault for each in records if isinstance(each.body, Refusal)] == [no]
    assert team.ran == []


async def test_what_a_guard_rewrites_is_what_the_callee_gets_and_what_is_recorded(make_hub: Callable[..., Hub]) -> None:
    """C6: a rewriting guard is the last word on the input."""
    team = Team(make_hub, on_b(lambda request, facts: Rewrite(replace(request, input="[redacted]"))))
    async with team.hub as hub:
        reply = await team.reply()
        root = await hub.ask("b", input="secret", user="u-1")
        records = [*await hub.store.records(run=reply.run), *await hub.store.records(run=root.run)]
    inputs = [each.body.input for each in records if isinstance(each.body, Request) and each.body.target == "b"]
    assert (reply.result, root.result) == ("did [redacted]", "did [redacted]")
    assert (team.ran, inputs) == (["[redacted]"] * 2, ["[redacted]"] * 2)


async def test_a_rewritten_input_is_still_held_to_the_capabilitys_schema(make_hub: Callable[..., Hub]) -> None:
    """C6: what goes to the callee is what was checked."""

    def garbles(request: Request, facts: Facts) -> Verdict:
        return Rewrite(replace(request, input={"amount": "much"}))

    hub = make_hub(guards=[garbles])
    ran: list[object] = []

    @hub.agent("b", capabilities=[Capability(code="PAY", input_schema={"properties": {"amount": {"type": "integer"}}})])
    async def b(brief: Brief) -> str:
        ran.append(brief.input)
        return "x"

    async with hub:
        response = await hub.ask("b", capability="PAY", input={"amount": 1}, user="u-1")
    assert code_of(response) == (Status.REFUSED, Code.INPUT_VALIDATION_FAILED)
    assert ran == []


@pytest.mark.parametrize("error", [ValueError("bug"), KeyError("bug"), RecursionError("bug"), AssertionError("bug")])
async def test_a_guard_that_raises_lets_nothing_pass(make_hub: Callable[..., Hub], error: Exception) -> None:
    """C6: it fails closed, for a delegation and for a root."""

    def broken(request: Request, facts: Facts) -> Verdict:
        raise error

    team = Team(make_hub, on_b(broken))
    async with team.hub as hub:
        reply = await team.reply()
        root = await hub.ask("b", user="u-1")
    assert code_of(reply) == code_of(root) == (Status.REFUSED, Code.PERMISSION_DENIED)
    assert team.ran == []


@pytest.mark.parametrize("widened", ["tokens", "time_ms", "tools", "max_depth", "user", "target"])
async def test_a_rewrite_cannot_give_a_callee_more_than_its_caller_has(
    make_hub: Callable[..., Hub], widened: str
) -> None:
    """C6, O6: a guard that rewrites more than the words of a request is held to the caller's remit, or refused."""
    changes = {"tokens": 10**9, "time_ms": 10**9, "tools": None, "max_depth": 50, "user": "u-2"}

    def widening(request: Request, facts: Facts) -> Verdict:
        if widened == "target":
            return Rewrite(replace(request, target="secret"))
        return Rewrite(replace(request, remit=replace(request.remit, **{widened: changes[widened]})))

    hub = make_hub(guards=[on_b(widening)])
    got: list[Brief] = []

    @hub.tool("delete")
    async def delete() -> str:
        return "deleted"

    async def b(brief: Brief) -> str:
        got.append(brief)
        return "x"

    hub.agent("b", tools=["delete"])(b)
    hub.agent("secret")(b)

    @hub.agent("a", may_call=["b"], tools=["delete"])
    async def a(brief: Brief) -> str:
        reply = await brief.delegate("b", tools=[])
        return reply.status

    async with hub:
        response = await hub.ask("a", user="u-1", deadline_ms=5_000, max_tokens=1_000)
    assert response.ok, response.fault
    for brief in got:
        remit = brief.remit
        assert (brief.request.target, brief.user, brief.tools) == ("b", "u-1", frozenset())
        assert (remit.tokens <= 1_000, remit.time_ms <= 5_000, remit.max_depth <= 5) == (True, True, True)


# ── asking a person ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_person_is_not_asked_the_same_twice_nor_without_end(make_hub: Callable[..., Hub]) -> None:
    """C6: a question that was agreed to counts as answered; a guard that always finds another is not satisfied."""
    questions: list[str] = []

    async def patient(question: Question) -> bool:
        questions.append(question.text)
        return True

    team = Team(make_hub, on_b(lambda request, facts: Ask("Sure?")), patient)
    async with team.hub:
        assert (await team.reply()).ok
    assert questions == ["Sure?"]
    numbers = iter(range(1_000))
    team = Team(make_hub, on_b(lambda request, facts: Ask(f"Sure? ({next(numbers)})")), patient)
    async with team.hub:
        reply = await team.reply()
    assert code_of(reply) == (Status.REFUSED, Code.APPROVAL_DECLINED)
    assert (team.ran, len(questions) < 20) == ([], True)
