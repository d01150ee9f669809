"""A run that asks on and on is bounded, though it costs no tokens: in delegations, and in what it leaves on record."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from remit import Brief, Call, Hub, Kind, Limits, RemitError, Status
from remit.policy.breaker import BreakerSettings
from remit.runtime.frames import Tally
from remit.runtime.ledger import MOST_TALLIES, Ledger
from remit_server import connect
from remit_testing import MemoryStore
from samples import a_remit, a_request
from serving import NORTH, serving

MakeHub = Callable[..., Hub]


def asking(hub: Hub, times: int) -> list[str]:
    """Let `boss` ask `clerk` so often, and return what it was answered, with time."""
    answers: list[str] = []

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return "done"

    @hub.agent("boss", may_call=["*"])
    async def boss(brief: Brief) -> int:  # pyright: ignore[reportUnusedFunction]
        for number in range(times):
            reply = await brief.delegate("clerk", objective=f"item {number}")
            answers.append(str(reply.fault.code if reply.fault else reply.result))
        return len(answers)

    return answers


async def kinds(hub: Hub, run: str) -> Counter[str]:
    found: Counter[str] = Counter()
    seq = 0
    while page := await hub.store.records(run=run, after=seq):
        seq = page[-1].seq
        found.update(each.kind for each in page)
    return found


async def test_an_agent_that_asks_in_a_loop_is_refused_after_as_many_as_it_may_ask_for(make_hub: MakeHub) -> None:
    hub = make_hub(limits=Limits(max_agent_delegations=5))
    answers = asking(hub, 8)
    async with hub:
        response = await hub.ask("boss", "go", user="u-1")
    assert (response.status, answers) == (Status.SUCCESS, ["done"] * 5 + ["MAX_DELEGATIONS_EXCEEDED"] * 3)


async def test_the_default_bounds_a_loop_that_costs_no_tokens() -> None:
    hub = Hub(store=MemoryStore(), redaction=False, limits=Limits(root_tokens=10_000_000))
    answers = asking(hub, 1_050)
    async with hub:
        await hub.ask("boss", "go", user="u-1")
    assert Counter(answers) == {"done": 1_000, "MAX_DELEGATIONS_EXCEEDED": 50}


async def test_all_agents_of_a_run_share_one_bound(make_hub: MakeHub) -> None:
    hub = make_hub(limits=Limits(max_delegations=7))
    ran: list[str] = []

    @hub.agent("leaf")
    async def leaf(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        ran.append("leaf")
        return "done"

    @hub.agent("middle", may_call=["leaf"])
    async def middle(brief: Brief) -> list[str]:  # pyright: ignore[reportUnusedFunction]
        ran.append("middle")
        replies = [await brief.delegate("leaf", objective=f"{brief.objective} {number}") for number in range(3)]
        return [str(reply.fault.code if reply.fault else reply.result) for reply in replies]

    @hub.agent("root", may_call=["middle"])
    async def root(brief: Brief) -> object:  # pyright: ignore[reportUnusedFunction]
        return [(await brief.delegate("middle", objective=str(number))).result for number in range(2)]

    async with hub:
        response = await hub.ask("root", "go", user="u-1")
        again = await hub.ask("root", "go", user="u-1")
    assert response.result == [["done"] * 3, ["done", "done", "MAX_DELEGATIONS_EXCEEDED"]]
    assert again.result == response.result, "each run begins anew"
    assert ran.count("leaf") == 10


async def test_what_was_refused_for_another_reason_counts_too_and_is_recorded_only_so_often(make_hub: MakeHub) -> None:
    """An agent that asks for what it may not have must not fill the store either."""
    hub = make_hub(limits=Limits(max_delegations=6))

    @hub.agent("boss")
    async def boss(brief: Brief) -> object:  # pyright: ignore[reportUnusedFunction]
        replies = [await brief.delegate("stranger", objective=str(number)) for number in range(20)]
        return Counter(str(reply.fault.code) for reply in replies if reply.fault)

    async with hub:
        response = await hub.ask("boss", "go", user="u-1")
        assert response.result == {"AGENT_NOT_FOUND": 20}
        assert await kinds(hub, response.run) == {"started": 1, "refused": 6, "notice": 1, "result": 1}


async def test_fanned_out_and_chained_calls_count_one_by_one(make_hub: MakeHub) -> None:
    hub = make_hub(limits=Limits(max_agent_delegations=4))
    asking(hub, 0)

    @hub.agent("fan", may_call=["clerk"])
    async def fan(brief: Brief) -> list[str]:  # pyright: ignore[reportUnusedFunction]
        calls = [Call(target="clerk", objective=f"{number}") for number in range(3)]
        replies = await brief.fan_out(calls)
        replies += await brief.chain([Call(target="clerk", objective=f"then {number}") for number in range(3)])
        return [str(reply.fault.code if reply.fault else reply.result) for reply in replies]

    async with hub:
        response = await hub.ask("fan", "go", user="u-1")
    assert response.result == ["done"] * 4 + ["MAX_DELEGATIONS_EXCEEDED"]


async def test_a_running_hub_takes_over_other_bounds(make_hub: MakeHub) -> None:
    hub = make_hub(limits=Limits(max_agent_delegations=2))
    answers = asking(hub, 4)
    async with hub:
        await hub.ask("boss", "go", user="u-1")
        hub.reconfigure(limits=Limits(max_agent_delegations=3))
        await hub.ask("boss", "go", user="u-1")
    refusal = "MAX_DELEGATIONS_EXCEEDED"
    assert answers == ["done", "done", refusal, refusal, "done", "done", "done", refusal]


# ── what it leaves on record ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_whose_records_take_too_much_room_can_do_nothing_more_that_adds_to_them(make_hub: MakeHub) -> None:
    hub = make_hub(limits=Limits(max_record_bytes=50_000, root_tokens=1_000_000, delegation_tokens=100_000))

    @hub.tool()
    def look(text: str) -> str:  # pyright: ignore[reportUnusedFunction]
        return "seen"

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return "x" * 10_000

    @hub.agent("boss", may_call=["clerk"], tools=["look"])
    async def boss(brief: Brief) -> object:  # pyright: ignore[reportUnusedFunction]
        codes: list[str] = []
        for number in range(30):
            reply = await brief.delegate("clerk", objective=f"item {number}")
            await hub.store.flush()  # what is not written yet is not counted
            codes.append(str(reply.fault.code if reply.fault else "done"))
        for number in range(30):
            brief.progress("y" * 1_000)
            try:
                await brief.use("look", text=f"{number}")
            except RemitError as error:
                codes.append(str(error.fault.code))
        return codes

    async with hub:
        response = await hub.ask("boss", "go", user="u-1")
        records = await hub.store.records(run=response.run)
    asked, used = response.result[:30], response.result[30:]
    assert (asked.index("RECORD_LIMIT_EXCEEDED"), set(asked[5:])) == (5, {"RECORD_LIMIT_EXCEEDED"})
    assert used == ["RECORD_LIMIT_EXCEEDED"] * 30
    kinds = Counter(record.kind for record in records)
    assert kinds == {Kind.STARTED: 1, Kind.DELEGATION: 5, Kind.RESULT: 6, Kind.REFUSED: 1, Kind.NOTICE: 1}
    assert hub.store.sizes == {}


async def test_the_next_run_has_room_again(make_hub: MakeHub) -> None:
    hub = make_hub(limits=Limits(max_record_bytes=2_000))
    answers = asking(hub, 4)
    async with hub:
        for _ in range(2):
            await hub.ask("boss", "go " + "x" * 1_000, user="u-1")
    assert answers[0] == answers[4] == "done"


# ── from other hubs ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_one_run_of_another_hub_asks_for_here_is_counted_together(tmp_path: Path) -> None:
    back = Hub(name="back", store=tmp_path / "back.db", durability="process", limits=Limits(max_delegations=5))
    front = Hub(name="north", store=tmp_path / "front.db", durability="process")
    ran: list[str] = []

    @back.agent("worker")
    async def worker(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        ran.append(brief.objective)
        return "done"

    @back.agent("planner", may_call=["worker"])
    async def planner(brief: Brief) -> list[str]:  # pyright: ignore[reportUnusedFunction]
        replies = [await brief.delegate("worker", objective=f"{brief.objective} {number}") for number in range(2)]
        return [str(reply.fault.code if reply.fault else reply.result) for reply in replies]

    @front.agent("boss", may_call=["planner"])
    async def boss(brief: Brief) -> object:  # pyright: ignore[reportUnusedFunction]
        return [(await brief.delegate("planner", objective=f"part {number}")).result for number in range(4)]

    async with serving(back, NORTH) as server:
        connect(front, "planner", server.address, token="north")
        async with front:
            first = await front.ask("boss", "go", user="u-1")
            second = await front.ask("boss", "go", user="u-1")
    refusal = "MAX_DELEGATIONS_EXCEEDED"
    assert first.result == [["done"] * 2, ["done"] * 2, ["done", refusal], [refusal] * 2]
    assert second.result == first.result, "another run of that hub is counted by itself"
    assert len(ran) == 10


def test_a_request_is_counted_with_the_run_that_it_is_part_of() -> None:
    ledger = Ledger(BreakerSettings())

    def tally(id: str, via: str | None = "north", chain: tuple[str, ...] = ("prime@north",)) -> Tally:
        return ledger.tally_of(a_request(id=id, via=via, remit=a_remit(chain=chain)))

    assert tally("run-a.1") is tally("run-a.2.1") is tally("run-a.2+1")
    assert len({tally("run-a.1"), tally("run-b.1"), tally("run-a.1", via="south")}) == 3
    # A client that numbers its requests asks for a run each time.
    assert tally("batch.1", via="web", chain=()) is not tally("batch.2", via="web", chain=())
    assert tally("run-a.1", via=None) is not tally("run-a.2", via=None)
    for number in range(2 * MOST_TALLIES):
        tally(f"run-{number}.1")
    assert len(ledger.tallies) == MOST_TALLIES
