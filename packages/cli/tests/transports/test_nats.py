"""Agents that other hubs of the team host, over a real NATS server: the store holds the truth, NATS carries."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import nats
import nats.errors
import pytest
from msgspec.structs import replace
from nats.aio.msg import Msg
from nats.js import JetStreamContext

import remit
from nats_server import shared_server, team_name
from remit import Brief, Code, Request, Response, Status
from remit.policy.verdict import ALLOW, Ask, Facts, Verdict
from remit.ports import RunScope
from remit.ports.keys import HubKeys
from remit.protocol.card import AgentCard
from remit.protocol.codec import encode as encode_value
from remit.protocol.remit import Priority
from remit.runtime.shared_requests import CancelOrder
from remit_cli.places import reading
from remit_cli.show.runs import find_run, tree_of
from remit_cluster.nats import takeover
from remit_cluster.nats.bus import Bus, join_bus
from remit_cluster.nats.connection import BusSettings, Connection
from remit_cluster.nats.presence import Presence, present_hubs
from remit_cluster.nats.subjects import News, PublishedCard, Subjects, encode
from remit_cluster.nats.takeover import HubWatch
from remit_server.figures_endpoints import CurrentFigures
from remit_testing.transports.conformance import TransportConformance
from waiting import PATIENCE_S, eventually


class TestNats(TransportConformance):
    @pytest.fixture(autouse=True)
    def _in_folder(self, tmp_path: Path) -> None:
        self._team = team_name()
        self._store = tmp_path / "hub.db"

    def hubs(self, **options: Any) -> tuple[remit.Hub, remit.Hub]:
        """Two hubs of one team: the same name and the same store, as with the same team file."""
        near, far = (remit.Hub(name=self._team, store=self._store, durability="process", **options) for _ in range(2))
        return near, far

    @asynccontextmanager
    async def joined(self, near: remit.Hub, far: remit.Hub) -> AsyncGenerator[None]:
        settings = BusSettings(url=shared_server().url)
        join_bus(near, settings, name=self._team, calls=list(far.cards.values()))
        join_bus(far, settings, name=self._team, calls=[AgentCard(name="boss")])
        async with far, near:
            yield


# ── a team of hubs ────────────────────────────────────────────────────────────────────────────────────────────────────


class Hubs:
    """Hubs of one team in this process, each with a connection and a store of its own on one file."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "hub.db"
        self.name = team_name()
        self._stack = AsyncExitStack()

    def hub(self, **options: Any) -> remit.Hub:
        return remit.Hub(name=self.name, store=self.store, durability="process", **options)

    async def open(self, hub: remit.Hub, **options: Any) -> Bus:
        bus = join_bus(hub, BusSettings(url=shared_server().url, **options), name=self.name)
        await self._stack.enter_async_context(hub)
        return bus

    async def __aenter__(self) -> "Hubs":
        await self._stack.enter_async_context(asyncio.timeout(PATIENCE_S))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


async def known(hub: remit.Hub, agent: str) -> None:
    """Wait until a hub has found an agent."""

    async def is_found() -> bool:
        bus = hub.kept(Bus)
        assert bus is not None
        await bus.find(agent)
        return agent in hub.cards

    await eventually(is_found)


async def test_an_answer_from_another_hub_of_the_team_is_judged_once_by_the_hub_of_its_caller(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    @remit.on_answer
    def asks(request: Request, facts: Facts) -> Verdict:
        return Ask("May it be told?") if request.origin == "writer" else ALLOW

    async def writer(brief: Brief) -> str:
        return brief.text

    async def boss(brief: Brief) -> str:
        return str((await brief.delegate("writer", objective="Write")).unwrap())

    def person(at: str) -> Any:
        async def agrees(question: Any) -> bool:
            asked.append((at, question.request.target))
            return True

        return agrees

    async with Hubs(tmp_path) as hubs:
        near, far = (hubs.hub(guards=[asks], approver=person(at)) for at in ("near", "far"))
        near.add("boss", boss, may_call=["*"])
        far.add("writer", writer)
        await hubs.open(far)
        await hubs.open(near)
        await known(near, "writer")
        assert (await near.ask("boss", "Go", user="u")).unwrap() == "Write"
    assert asked == [("near", "boss")]


async def test_a_run_over_three_hubs_has_one_tree_one_budget_and_one_record(tmp_path: Path) -> None:
    async with Hubs(tmp_path) as hubs:
        near, middle, far = hubs.hub(), hubs.hub(), hubs.hub()

        @near.agent("boss", may_call=["*"])
        async def boss(brief: Brief) -> list[Any]:
            reply = await brief.delegate("planner", objective="Plan", max_tokens=1_000)
            return [reply.unwrap(), reply.usage.total, brief.remit.tokens - brief.tokens_left()]

        @middle.agent("planner", may_call=["*"])
        async def planner(brief: Brief) -> str:
            brief.spend(prompt=10)
            replies = [await brief.delegate("worker", objective=each, max_tokens=100) for each in ("one", "two")]
            return " ".join(reply.unwrap() for reply in replies)

        @far.agent("worker")
        async def worker(brief: Brief) -> str:
            brief.spend(completion=20)
            assert [each.partition("@")[0] for each in brief.remit.chain] == ["boss", "planner"]
            return f"{brief.objective} at depth {brief.remit.depth}"

        for hub in (near, middle, far):
            await hubs.open(hub)
        await known(near, "planner")
        await known(middle, "worker")
        response = await near.ask("boss", "Go", user="anna")
        assert response.unwrap() == ["one at depth 2 two at depth 2", 50, 50]
        with reading(hubs.store) as connection:
            assert find_run(connection, "last") == response.run
            tree = tree_of(connection, response.run)
        assert tree.root is not None
        (plan,) = tree.root.children
        assert [(each.agent, each.state, each.request and each.request.objective) for each in plan.children] == [
            ("worker", Status.SUCCESS, "one"),
            ("worker", Status.SUCCESS, "two"),
        ]
        assert (plan.agent, tree.tally) == ("planner", {Status.SUCCESS: 4})
        state = near.agent_status()["planner"]
        assert (state.is_remote, [each.hub for each in state.hosts]) == (True, [hubs.name])
        # The record has each of these calls twice, where it was asked for and where it was carried out.
        figures = await CurrentFigures(near.store).look(lambda current: current)
        assert {
            key.agent: (sums.delegations, sums.runs, sums.tokens)
            for period in figures.between(0, 10**15)
            for key, sums in period.sums.items()
        } == {"boss": (1, 1, 0), "planner": (1, 0, 10), "worker": (2, 0, 40)}


async def test_a_question_of_a_host_is_answered_at_any_hub(tmp_path: Path) -> None:
    def ask_first(request: Request, _: Facts) -> Verdict:
        return Ask("May it?") if request.target == "payer" else ALLOW

    async with Hubs(tmp_path) as hubs:
        near, far = hubs.hub(), hubs.hub(guards=[ask_first], approver="inbox")

        @far.agent("payer")
        async def payer(brief: Brief) -> str:
            return f"paid {brief.objective}"

        await hubs.open(far)
        await hubs.open(near)
        asking = asyncio.create_task(near.ask("payer", "the rent", user="anna"))
        (question,) = await eventually(near.pending)
        await near.decide(question.id, agreed=True, by="anna")
        assert (await asking).unwrap() == "paid the rent"


async def test_hosts_take_no_more_than_their_slots_and_the_queue_is_bounded(tmp_path: Path) -> None:
    async with Hubs(tmp_path) as hubs:
        near, hosts, go = hubs.hub(), [hubs.hub(), hubs.hub()], asyncio.Event()
        running: Counter[int] = Counter()
        most: Counter[int] = Counter()
        for number, host in enumerate(hosts):

            async def slow(brief: Brief, number: int = number) -> str:
                running[number] += 1
                most[number] = max(most[number], running[number])
                await go.wait()
                running[number] -= 1
                return brief.objective

            host.add("slow", slow, concurrency=2, queue=3)
            await hubs.open(host)
        bus = await hubs.open(near)
        await bus.find("slow")
        assert len([hub for hub in bus.hubs if hub.agents]) == 2
        tasks = [asyncio.create_task(near.ask("slow", str(each), user="anna")) for each in range(4)]
        await eventually(lambda: sum(running.values()) == 4)
        for each in range(4, 10):  # one after another, so that the queue is counted exactly
            tasks.append(asyncio.create_task(near.ask("slow", str(each), user="anna")))
            await eventually(partial(bus.queued, "slow"), when=lambda queued, each=each: queued == each - 3)
        refused = await near.ask("slow", "too much", user="anna")
        assert refused.fault is not None
        assert (refused.status, refused.fault.code) == (Status.REFUSED, Code.OVERLOADED)
        assert refused.fault.retry_after_ms == 1_000
        go.set()
        assert [(await each).unwrap() for each in tasks] == [str(each) for each in range(10)]
        assert most == {0: 2, 1: 2}


async def test_a_burst_of_requests_does_not_overfill_the_queue(tmp_path: Path) -> None:
    async with Hubs(tmp_path) as hubs:
        near, host, go = hubs.hub(), hubs.hub(), asyncio.Event()

        async def slow(_: Brief) -> str:
            await go.wait()
            return "done"

        host.add("slow", slow, concurrency=1, queue=3)
        await hubs.open(host)
        bus = await hubs.open(near)
        await known(near, "slow")
        tasks = [asyncio.create_task(near.ask("slow", str(each), user="anna")) for each in range(20)]
        await eventually(lambda: sum(each.done() for each in tasks) >= 16)
        assert await bus.queued("slow") <= 3
        go.set()
        responses = [await each for each in tasks]
        served = [each for each in responses if each.ok]
        assert 1 <= len(served) <= 4
        assert {each.fault.code for each in responses if each.fault is not None} == {Code.OVERLOADED}


async def test_what_is_queued_with_a_higher_priority_comes_first(tmp_path: Path) -> None:
    async with Hubs(tmp_path) as hubs:
        near, host, go = hubs.hub(), hubs.hub(), asyncio.Event()
        order: list[str] = []

        @host.agent("slow", concurrency=1)
        async def slow(brief: Brief) -> str:
            order.append(brief.objective)
            await go.wait()
            return "done"

        await hubs.open(host)
        bus = await hubs.open(near)
        wanted = [Priority.NORMAL, Priority.LOW, Priority.NORMAL, Priority.HIGH]
        tasks: list[asyncio.Task[remit.Response]] = []
        for place, priority in enumerate(wanted):
            tasks.append(asyncio.create_task(near.ask("slow", f"{place} {priority}", user="anna", priority=priority)))
            await eventually(lambda: order)
            await eventually(partial(bus.queued, "slow"), when=place.__eq__)
        go.set()
        for each in tasks:
            (await each).unwrap()
        assert order == ["0 NORMAL", "3 HIGH", "2 NORMAL", "1 LOW"]


async def test_a_hub_that_falls_silent_is_gone_and_versions_stand_side_by_side(tmp_path: Path) -> None:
    async with Hubs(tmp_path) as hubs:
        near, old, new = hubs.hub(), hubs.hub(), hubs.hub()
        for host, version in ((old, "1.0"), (new, "2.0")):
            host.register(AgentCard(name="helper", version=version), helper_of(version))
        silent = await hubs.open(old, presence_s=1.0)
        await hubs.open(new, presence_s=1.0)
        bus = await hubs.open(near, presence_s=1.0)
        await bus.find("helper")
        await eventually(lambda: sorted(each.card.version for hub in bus.hubs for each in hub.agents) == ["1.0", "2.0"])
        assert near.cards["helper"].name == "helper"
        await silent.close()  # as if its machine were gone
        await eventually(lambda: [each.card.version for hub in bus.hubs for each in hub.agents] == ["2.0"])
        assert (await near.ask("helper", "Go", user="anna")).unwrap() == "2.0"


async def test_the_card_of_an_agent_on_the_bus_follows_its_newest_host(tmp_path: Path) -> None:
    def card(version: str) -> AgentCard:
        return AgentCard(name="helper", version=version, description=f"Helps, version {version}")

    async with Hubs(tmp_path) as hubs:
        near, old, new = hubs.hub(), hubs.hub(), hubs.hub()
        old.register(card("1.0"), helper_of("1.0"))
        new.register(card("2.0"), helper_of("2.0"))
        bus = await hubs.open(near, presence_s=1.0)
        await hubs.open(old, presence_s=1.0)
        await bus.find("helper")
        assert near.cards["helper"].version == "1.0"
        newer = await hubs.open(new, presence_s=1.0)
        await eventually(lambda: near.cards["helper"].description == "Helps, version 2.0")
        assert old.cards["helper"].version == "1.0"  # what a hub hosts itself, nobody replaces
        new.reconfigure(cards=[card("2.1")])
        await eventually(lambda: near.cards["helper"].version == "2.1")
        await newer.leave()
        await eventually(lambda: near.cards["helper"].version == "1.0")
        reply = await near.ask("helper", "Go", user="anna")
        while reply.fault and reply.fault.code is Code.DELEGATION_UNAVAILABLE:  # its presence is late on a busy machine
            reply = await near.ask("helper", "Go", user="anna")
        assert reply.unwrap() == "1.0"


def helper_of(version: str) -> Any:
    async def helper(_: Brief) -> remit.Answer:
        return remit.Answer(version)

    return helper


async def test_a_hub_hears_only_of_the_agents_that_it_calls_and_finds_the_others_when_they_are_asked(
    tmp_path: Path,
) -> None:
    async with Hubs(tmp_path) as hubs:
        near, far = hubs.hub(), hubs.hub()
        for name in ("called", "asked", "other"):
            far.register(AgentCard(name=name), helper_of(name))
        near.add("boss", helper_of("boss"), may_call=["called"])
        bus = join_bus(
            near, BusSettings(url=shared_server().url), name=hubs.name, calls=[AgentCard(name="called")], hosts=()
        )
        await hubs.open(far)
        async with near:
            assert [each.card.name for hub in bus.hubs for each in hub.agents] == ["called"]
            assert (await near.ask("asked", "Go", user="anna")).unwrap() == "asked"
            assert sorted(each.card.name for hub in bus.hubs for each in hub.agents) == ["asked", "called"]
            assert sorted(near.cards) == ["asked", "boss", "called"]
            for nobody in ("nobody", "* >"):
                refused = await near.ask(nobody, "Go", user="anna")
                assert refused.fault is not None
                assert refused.fault.code is Code.AGENT_NOT_FOUND
            assert sorted(near.cards) == ["asked", "boss", "called"]


async def test_a_card_is_published_when_it_changes_and_one_heartbeat_stands_for_all_agents(tmp_path: Path) -> None:
    async with Hubs(tmp_path) as hubs:
        far, subjects, counts = hubs.hub(), Subjects(hubs.name), Counter[str]()
        for name in ("one", "two"):
            far.register(AgentCard(name=name), helper_of(name))
        client = await nats.connect(shared_server().url)  # pyright: ignore[reportUnknownMemberType]

        async def count(message: Msg) -> None:
            counts[message.subject.split(".")[1].rpartition("-")[2]] += 1

        for subject in (subjects.heartbeat("*"), subjects.hosted("*", "*")):
            await client.subscribe(subject, cb=count)  # pyright: ignore[reportUnknownMemberType]
        await client.flush()
        await hubs.open(far, presence_s=1.0)
        await eventually(lambda: counts["hosts"] >= 3)
        assert counts["agents"] == 2
        far.reconfigure(cards=[replace(card, version="2.0") for card in far.cards.values() if card.name == "one"])
        await eventually(lambda: counts["agents"] == 3)
        await client.close()


async def test_hubs_are_listed_though_reading_their_cards_takes_longer_than_a_heartbeat_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Presence._entries  # pyright: ignore[reportPrivateUsage]

    async def slowly(presence: Presence, bucket: str, subjects: list[str]) -> list[Msg]:
        entries = await read(presence, bucket, subjects)
        if bucket.endswith("-agents"):
            await asyncio.sleep(1.2)
        return entries

    async with Hubs(tmp_path) as hubs:
        far = hubs.hub()
        far.register(AgentCard(name="helper"), helper_of("helper"))
        await hubs.open(far, presence_s=1.0)
        monkeypatch.setattr(Presence, "_entries", slowly)
        listed = await present_hubs(BusSettings(url=shared_server().url, presence_s=1.0), hubs.name)
        assert listed is not None
        assert [each.card.name for hub in listed for each in hub.agents] == ["helper"]


async def test_cards_that_vanish_while_the_hubs_are_listed_hold_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Hubs(tmp_path) as hubs:
        far, subjects = hubs.hub(), Subjects(hubs.name)
        add = cast("Any", JetStreamContext.add_consumer)  # pyright: ignore[reportUnknownMemberType]
        for name in ("first", "second"):
            far.register(AgentCard(name=name), helper_of(name))

        async def then_remove(context: JetStreamContext, stream: str, *more: Any) -> Any:
            made = await add(context, stream, *more)
            if stream.endswith("-agents"):
                gone = subjects.hosted("first", far.shared.worker)
                await context.purge_stream(stream, subject=gone)  # pyright: ignore[reportUnknownMemberType]
            return made

        await hubs.open(far)
        monkeypatch.setattr(JetStreamContext, "add_consumer", then_remove)
        listed = await present_hubs(BusSettings(url=shared_server().url), hubs.name)
        assert listed is not None
        assert [each.card.name for hub in listed for each in hub.agents] == ["second"]


async def test_a_hub_that_left_its_cards_and_has_no_heartbeat_is_no_host(tmp_path: Path) -> None:
    async with Hubs(tmp_path) as hubs:
        near, subjects = hubs.hub(), Subjects(hubs.name)
        bus = join_bus(
            near, BusSettings(url=shared_server().url, patience_s=0.2), name=hubs.name, calls=[AgentCard(name="helper")]
        )
        async with near:
            client = await nats.connect(shared_server().url)  # pyright: ignore[reportUnknownMemberType]
            left = encode(PublishedCard(AgentCard(name="helper"), 1))
            await client.jetstream().publish(subjects.hosted("helper", "dead"), left)  # pyright: ignore[reportUnknownMemberType]
            await client.close()
            response = await near.ask("helper", "Go", user="anna")
            assert response.fault is not None
            assert response.fault.message == "no hub hosts helper at the moment"
            assert bus.hubs == []


async def test_a_request_that_is_handed_over_is_counted_once_for_its_user_and_its_agent(tmp_path: Path) -> None:
    """The hub that is asked counts the user's day, and the hub that hosts the agent counts its rate."""
    async with Hubs(tmp_path) as hubs:
        limits = remit.Limits(root_tokens=400, delegation_tokens=400, user_tokens_per_day=1_000)
        near, far = hubs.hub(limits=limits, shared=True), hubs.hub(limits=limits, shared=True)

        @far.agent("spender", rate=remit.Rate(calls=3, seconds=30 * 24 * 3_600.0))
        async def spender(brief: Brief) -> int:
            granted = brief.tokens_left()
            brief.spend(prompt=300)
            return granted

        for hub in (near, far):
            await hubs.open(hub)
        granted = [(await near.ask("spender", f"{number}", user="anna")).unwrap() for number in range(3)]
        assert granted == [400, 400, 400]
        over = await near.ask("spender", "4", user="ben")
        assert over.fault is not None
        assert over.fault.code is remit.Code.RATE_LIMITED


async def test_only_hubs_of_the_store_can_say_how_a_run_ended(tmp_path: Path) -> None:
    """Everybody who may publish on the bus can send what looks like an outcome; it has to be sealed with the key."""
    async with Hubs(tmp_path) as hubs:
        near, far, go = hubs.hub(), hubs.hub(), asyncio.Event()
        begun: list[str] = []

        @far.agent("slow")
        async def slow(brief: Brief) -> str:
            begun.append(brief.request.run)
            await go.wait()
            return "true"

        await hubs.open(far)
        await hubs.open(near)
        task = asyncio.create_task(near.ask("slow", "Go", user="anna"))
        (run,) = await eventually(lambda: begun)
        forger = await nats.connect(shared_server().url)  # pyright: ignore[reportUnknownMemberType]
        subjects = Subjects(hubs.name)
        forged = Response(
            version="1.0", id=run, target="slow", status=Status.SUCCESS, run=run, session=run, result="forged"
        )
        for outcome in (b"short", b"x" * 500, HubKeys(b"guessed").lock(encode_value(forged), f"outcome {run}")):
            await forger.publish(subjects.news(near.shared.worker, run), encode(News(outcome=outcome)))
        await forger.close()
        await asyncio.wait({task}, timeout=0.1)
        go.set()
        assert (await task).unwrap() == "true"


async def test_only_hubs_of_the_store_can_cancel_a_run_and_only_one_that_the_sender_may_see(tmp_path: Path) -> None:
    """The bus alone gives no right: an order is sealed with the key, and says whose runs it is about."""
    async with Hubs(tmp_path) as hubs:
        near, far = hubs.hub(), hubs.hub()
        runs: dict[str, str] = {}
        stopped: list[str] = []

        @far.agent("slow", concurrency=2)
        async def slow(brief: Brief) -> None:
            runs[brief.user] = brief.request.run
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(brief.user)

        await hubs.open(far)
        await hubs.open(near)
        tasks = [asyncio.create_task(far.ask("slow", "Go", user=user)) for user in ("anna", "bert")]
        await eventually(lambda: len(runs) == 2)
        forger = await nats.connect(shared_server().url)  # pyright: ignore[reportUnknownMemberType]
        forged = CancelOrder(runs["anna"], "mallory")
        for order in (encode(forged), b"x" * 500, HubKeys(b"guessed").lock(encode(forged), "cancel")):
            await forger.publish(Subjects(hubs.name).cancel(), order)
        await forger.close()
        berts, foreign = RunScope(users=["bert"]), CancelOrder(runs["bert"], "web", delegation=f"{runs['anna']}.1")
        orders = [replace(forged, scope=berts), foreign, CancelOrder(runs["bert"], "web", scope=berts)]
        assert [await near.shared.cancel_elsewhere(each) for each in orders] == [None, None, runs["bert"]]
        assert (await tasks[1]).status is Status.CANCELLED
        assert stopped == ["bert"]


async def test_a_cancelled_request_ends_also_if_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client drops a cancellation that comes with the reply; whoever asks in a loop would never end."""
    connection = Connection(BusSettings(url=shared_server().url), "test")
    await connection.open()

    async def dropping(*_: object, **__: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        with suppress(asyncio.CancelledError):
            task.cancel()
            await asyncio.sleep(0)
        raise nats.errors.NoRespondersError

    monkeypatch.setattr(connection.client, "request", dropping)
    try:
        asking = asyncio.create_task(connection.request("nobody", b"", 1.0))
        await asyncio.wait({asking})
        assert asking.cancelled()
    finally:
        await connection.close()


class LateWorkers:
    """Workers that have all missed a heartbeat."""

    worker = "own"
    lease_ms = 50

    def __init__(self, *late: str) -> None:
        self._late = late
        self.looks = self.sweeps = 0
        self.ended: set[str] = set()

    async def late_workers(self) -> list[str]:
        self.looks += 1
        return list(self._late)

    async def end_leases(self, worker: str) -> bool:
        self.ended.add(worker)
        return True

    def sweep_soon(self) -> None:
        self.sweeps += 1


async def test_of_hubs_that_are_late_only_one_that_left_the_bus_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that stands still is connected all the same, and one that never was on the bus is not missed there."""
    monkeypatch.setattr(takeover, "RECONNECTED_S", 0.1)
    subjects, url = Subjects(team_name()), shared_server().url
    other = await nats.connect(url)  # pyright: ignore[reportUnknownMemberType]

    async def reply(message: Msg) -> None:
        await message.respond(b"+")

    async def nothing(_: Msg) -> None: ...

    await other.subscribe(subjects.alive("slow"), cb=reply)  # pyright: ignore[reportUnknownMemberType]
    await other.subscribe(subjects.alive("still"), cb=nothing)  # pyright: ignore[reportUnknownMemberType]
    await other.flush()
    workers, connection = LateWorkers("slow", "still", "stranger", "dead"), Connection(BusSettings(url=url), "test")

    async def was_present(hub: str) -> bool:
        return hub != "stranger"

    watch = HubWatch(connection, subjects, workers, was_present)
    connection.on_connected.append(watch.connected)
    await connection.open()
    await watch.open()
    try:
        await eventually(lambda: workers.looks > 1 and workers.ended)
        assert workers.ended == {"dead"}
        await eventually(lambda: workers.sweeps > 1)  # its own, and what it hears as every hub does
        assert (await other.request(subjects.alive("own"), b"")).data == b"+"
        await other.close()
        await eventually(lambda: workers.ended == {"dead", "slow", "still"})
    finally:
        await watch.close()
        await connection.close()
