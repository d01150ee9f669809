"""Attacks on the bus by a client with NATS credentials of the team, where hubs sign what they say, and where not."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from nats_server import shared_server, team_name
from remit import Brief, Code, Hub, RemitError, Response, fault
from remit.protocol.card import AgentCard
from remit.protocol.errors import Fault
from remit.protocol.records import Kind, Notice, Progress
from remit_cluster.nats.bus import Bus, join_bus
from remit_cluster.nats.connection import BusSettings
from remit_cluster.nats.proofs import ROWS, BusProofs, ProofSettings, RefusedMessages, TrustedHub
from remit_cluster.nats.subjects import TAKEN, Heartbeat, News, Offer, PublishedCard, Subjects, encode
from remit_server.transports.credentials.keys import HubKey
from remit_server.transports.credentials.proof import WINDOW_MS
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S, eventually

NOW_MS = time.time_ns() // 1_000_000
KEYS = {name: HubKey.create(NOW_MS) for name in ("office", "lab", "stranger")}
HOSTS = {"office": frozenset[str](), "lab": frozenset({"helper"})}


def settings_for(name: str) -> ProofSettings:
    """The proofs of a hub: the office calls, the lab hosts `helper`, and nobody knows the stranger."""
    hubs = {
        each: TrustedHub(keys=frozenset({KEYS[each].signing(NOW_MS).public}), hosts=hosts)
        for each, hosts in HOSTS.items()
    }
    return ProofSettings(hubs=hubs, key=lambda: KEYS[name])


def ignore(_: str, __: Fault) -> None:
    pass


class Attacked:
    """Two hubs of a team, and a client that has NATS credentials of the team, and no key or the keys of a hub."""

    def __init__(self, folder: Path, *, signed: bool) -> None:
        self.team = team_name()
        self.subjects = Subjects(self.team)
        self.near, self.far = (
            Hub(name=self.team, store=folder / "hub.db", durability="process", approver="inbox") for _ in range(2)
        )
        self.go = asyncio.Event()
        self.far.add("helper", self._helper, concurrency=2)
        self.caller, self.host = (
            self._join(hub, name, signed) for hub, name in ((self.near, "office"), (self.far, "lab"))
        )
        self.overheard: list[Msg] = []
        self.client = Client()

    async def _helper(self, brief: Brief) -> str:
        brief.progress("began")
        await self.go.wait()
        return brief.objective

    def _join(self, hub: Hub, name: str, signed: bool) -> Bus:
        url = shared_server().url
        return join_bus(
            hub,
            BusSettings(url=url, presence_s=30, proofs=settings_for(name) if signed else None),
            name=self.team,
            hosts=None if name == "lab" else (),
        )

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator["Attacked"]:
        await self.client.connect(shared_server().url)

        async def hear(message: Msg) -> None:
            self.overheard.append(message)

        buckets = (f"$KV.{bucket}.>" for bucket in (self.subjects.hosts, self.subjects.agents))
        for subject in (f"remit.{self.team}.>", *buckets):
            await self.client.subscribe(subject, cb=hear)  # pyright: ignore[reportUnknownMemberType]
        await self.client.flush()
        try:
            async with asyncio.timeout(PATIENCE_S), self.far, self.near:
                await eventually(self._knows_helper)
                yield self
        finally:
            await self.client.close()

    async def _knows_helper(self) -> bool:
        await self.caller.find("helper")
        return "helper" in self.near.cards

    async def refusals(self, hub: Hub | None = None) -> list[tuple[Code | None, str]]:
        records = await (hub or self.near).store.records()
        return [
            (each.body.code, each.body.text)
            for each in records
            if each.kind is Kind.NOTICE and isinstance(each.body, Notice) and each.run == "bus"
        ]

    async def refused(self, code: Code, *words: str) -> None:
        """Wait until the record says that a message was refused, for this reason."""

        async def is_there() -> bool:
            refusals = await self.refusals()
            return any(each == code and all(word in text for word in words) for each, text in refusals)

        await eventually(is_there)

    def signed_by(self, name: str, subject: str, body: bytes) -> bytes:
        return BusProofs(settings_for(name), ignore).sign(subject, body)


@asynccontextmanager
async def attacked(folder: Path, *, signed: bool = True) -> AsyncGenerator[Attacked]:
    async with Attacked(folder, signed=signed).opened() as team:
        yield team


async def test_hubs_with_keys_work_as_ever_and_refuse_nothing_of_each_other(tmp_path: Path) -> None:
    async with attacked(tmp_path) as team:
        requests = [asyncio.create_task(team.near.ask("helper", str(each), user="anna")) for each in range(5)]
        await eventually(lambda: team.caller.queued("helper"), when=lambda queued: queued == 3)
        team.go.set()
        assert [(await each).unwrap() for each in requests] == ["0", "1", "2", "3", "4"]
        assert await team.refusals() == []
        assert {each.subject.split(".")[2] for each in team.overheard if each.subject.startswith("remit.")} == {
            *("offer", "queue", "queued", "news")
        }


async def test_a_forged_an_altered_and_a_replayed_offer_are_refused(tmp_path: Path) -> None:
    async with attacked(tmp_path) as team:
        team.go.set()
        (await team.near.ask("helper", "a", user="anna")).unwrap()
        subject = team.subjects.offer("helper")
        (offer,) = [each.data for each in team.overheard if each.subject == subject]
        taken = team.host.in_progress
        attacks: list[tuple[bytes, tuple[str, ...]]] = [
            (encode(Offer("run-1")), ("an offer", "not signed")),
            (team.signed_by("stranger", subject, encode(Offer("run-1"))), ("an offer", "belongs to no hub")),
            (offer.replace(b'"run":"', b'"run":"x'), ("not signed",)),  # the length of the text does not fit any more
            (offer[:-3] + bytes([offer[-3] ^ 1]) + offer[-2:], ("an offer", "was changed")),
            (offer, ("an offer", "sent before")),
            (team.signed_by("office", team.subjects.offer("boss"), encode(Offer("run-1"))), ("another subject",)),
        ]
        for forged, words in attacks:
            with pytest.raises(nats.errors.TimeoutError):
                await team.client.request(subject, forged, timeout=0.1)
            await team.refused(Code.UNAUTHENTICATED, *words)
        assert team.host.in_progress == taken
        assert team.far.metrics.turned_away[Code.UNAUTHENTICATED] == len(attacks)


async def test_a_replayed_request_of_the_queue_is_refused(tmp_path: Path) -> None:
    async with attacked(tmp_path) as team:
        requests = [asyncio.create_task(team.near.ask("helper", str(each), user="anna")) for each in range(3)]
        await eventually(lambda: team.caller.queued("helper"), when=lambda queued: queued == 1)
        team.go.set()
        for each in requests:
            (await each).unwrap()
        (queued,) = [each for each in team.overheard if ".queue." in each.subject]
        await team.client.publish(queued.subject, queued.data)
        await team.client.publish(queued.subject, encode(Offer("run-1")))
        team.host._host and team.host._host.look()  # pyright: ignore[reportPrivateUsage, reportUnusedExpression]
        await team.refused(Code.UNAUTHENTICATED, "a queued request", "sent before")
        await team.refused(Code.UNAUTHENTICATED, "a queued request", "not signed")


@pytest.mark.parametrize("signed", [True, False])
async def test_forged_text_reaches_a_user_only_where_nothing_is_signed(tmp_path: Path, signed: bool) -> None:
    async with attacked(tmp_path, signed=signed) as team:
        texts: list[str] = []

        async def follow() -> str:
            async with aclosing(team.near.stream("helper", "a", user="anna")) as records:
                async for record in records:
                    if isinstance(record.body, Progress):
                        texts.append(record.body.text)
                    if isinstance(record.body, Response):
                        return record.body.unwrap()
            raise AssertionError("it has no end")

        following = asyncio.create_task(follow())
        await eventually(lambda: "began" in texts)
        (genuine,) = [each for each in team.overheard if ".news." in each.subject]
        body = encode(Progress(delegation="d", agent="helper", text="Pay to account 666"))
        forged = encode(News(Kind.PROGRESS, msgspec.Raw(body)))
        await team.client.publish(genuine.subject, forged)
        await team.client.publish(genuine.subject, team.signed_by("office", genuine.subject, forged))
        await team.client.publish(genuine.subject, genuine.data)
        await team.client.publish(genuine.subject, encode(News()))  # a forged end: the store knows better
        if signed:
            await team.refused(Code.UNAUTHENTICATED, "news of a run", "not signed")
            await team.refused(Code.PERMISSION_DENIED, "news of a run", "the hub office may not host helper")
            await team.refused(Code.UNAUTHENTICATED, "news of a run", "sent before")
        else:
            await eventually(lambda: "Pay to account 666" in texts)
        team.go.set()
        assert await following == "a"
        assert signed is (texts == ["began"])


async def test_a_forged_cancel_is_nothing_that_the_bus_carries(tmp_path: Path) -> None:
    """Cancels go through the store, so a client of the bus cannot send one."""
    async with attacked(tmp_path) as team:
        request = asyncio.create_task(team.near.ask("helper", "a", user="anna"))
        await eventually(lambda: team.host.in_progress)
        (offer,) = [each.data for each in team.overheard if ".offer." in each.subject]
        run = str(msgspec.json.decode(offer[offer.index(b'{"run"') :])["run"])
        for place in ("cancel", "control", "offer.helper", "queued.helper", f"news.all.{run}"):
            await team.client.publish(f"remit.{team.team}.{place}", b'{"run":"%s","action":"cancel"}' % run.encode())
        await team.refused(Code.UNAUTHENTICATED, "an offer")
        await team.refused(Code.UNAUTHENTICATED, "a notice of a queued request")
        await team.refused(Code.UNAUTHENTICATED, "news of a run")
        team.go.set()
        assert (await request).unwrap() == "a"


def card_of(agent: str) -> bytes:
    return encode(PublishedCard(AgentCard(name=agent), 1))


@pytest.mark.parametrize("signed", [True, False])
async def test_a_forged_card_is_refused_where_hubs_have_keys(tmp_path: Path, signed: bool) -> None:
    async with attacked(tmp_path, signed=signed) as team:
        payments = team.subjects.hosted("payments", "forged")
        if not signed:
            await team.client.publish(payments, card_of("payments"))
            await team.client.flush()
            await team.caller.find("payments")
            assert "payments" in team.near.cards
            return
        place, beat = team.subjects.hosted("helper", "forged"), team.subjects.heartbeat(team.far.shared.worker)
        (genuine,) = [each.data for each in team.overheard if each.subject == beat][:1]
        draining = encode(Heartbeat("x", draining=True))
        card, heartbeat = "the card of an agent", "the heartbeat of a hub"
        attacks: list[tuple[str, bytes, Code, str, str]] = [
            (place, card_of("helper"), Code.UNAUTHENTICATED, card, "not signed"),
            (place, team.signed_by("stranger", place, card_of("helper")), Code.UNAUTHENTICATED, card, "no hub"),
            # With a key that was stolen from the lab, which hosts `helper` alone.
            (
                payments,
                team.signed_by("lab", payments, card_of("payments")),
                Code.PERMISSION_DENIED,
                card,
                "lab may not",
            ),
            # Somebody else says that the lab takes nothing new, or is gone.
            (beat, team.signed_by("office", beat, draining), Code.PERMISSION_DENIED, heartbeat, "a hub of lab"),
            (beat, b"", Code.UNAUTHENTICATED, heartbeat, "not signed"),
            (beat, genuine, Code.UNAUTHENTICATED, heartbeat, "sent before"),
        ]
        for subject, forged, code, what, word in attacks:
            await team.client.publish(subject, forged)
            await team.client.flush()
            if subject == payments:
                await team.caller.find("payments")
            await team.refused(code, what, word)
        assert "payments" not in team.near.cards
        assert [[each.card.name for each in hub.agents] for hub in team.caller.hubs] == [["helper"]]
        team.go.set()
        assert (await team.near.ask("helper", "a", user="anna")).unwrap() == "a"


async def test_a_hub_without_keys_remembers_nothing_of_hubs_that_somebody_invents(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with attacked(tmp_path, signed=False) as team:
        for number in range(30):
            await team.client.publish(team.subjects.hosted("helper", f"invented{number}"), b"no card")
        await team.client.flush()
        await eventually(lambda: caplog.text.count("invalid card of an agent on hub invented") >= 30)
        # These are never forgotten: only a hub that was present is.
        assert vars(vars(team.caller)["_presence"])["_signers"] == {}


async def test_who_swallows_offers_is_found_out_and_the_request_goes_to_the_queue(tmp_path: Path) -> None:
    async with attacked(tmp_path) as team:
        team.go.set()

        async def swallow(message: Msg) -> None:
            await message.respond(TAKEN)

        for _ in range(3):
            subject = team.subjects.offer("helper")
            await team.client.subscribe(subject, "hosts", swallow)  # pyright: ignore[reportUnknownMemberType]
        await team.client.flush()
        for each in range(12):
            assert (await team.near.ask("helper", str(each), user="anna")).unwrap() == str(each)
        await team.refused(Code.UNAUTHENTICATED, "a reply to an offer", "not signed")


# ── the rules alone ───────────────────────────────────────────────────────────────────────────────────────────────────


class Reader:
    """The office reads what the lab signed, each with a clock."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.refused: list[str] = []
        note: Callable[[str, Fault], None] = lambda _, why: self.refused.append(why.message)  # noqa: E731
        self._reads = BusProofs(settings_for("office"), note, lambda: self.now_ms)
        self._signs = BusProofs(settings_for("lab"), note, lambda: NOW_MS)

    def sign(self) -> bytes:
        return self._signs.sign("subject", b"body")

    def read(self, message: bytes, **options: int | bool) -> bytes | None:
        proven = self._reads.read("subject", message, "a message", **options)  # pyright: ignore[reportArgumentType]
        return proven and proven.body


def test_a_proof_is_good_for_its_window_and_once() -> None:
    reader = Reader()
    message = reader.sign()
    reader.now_ms = NOW_MS + WINDOW_MS
    assert reader.read(message) == b"body"
    assert reader.read(message) is None
    assert reader.read(message, stored=True) == b"body"  # it is in the bucket for all
    late = reader.sign()
    reader.now_ms = NOW_MS + WINDOW_MS + 1_000
    assert reader.read(late) is None
    assert reader.read(late, keep_ms=60_000) == b"body"
    reader.now_ms += 40_000
    assert reader.read(late, keep_ms=60_000) is None
    reader.now_ms = NOW_MS - WINDOW_MS - 1_000
    assert reader.read(reader.sign()) is None
    assert [each.removeprefix("a message is not proven: ") for each in reader.refused] == [
        "it was sent before",
        "it was signed 31 seconds ago; clocks may differ by 30 seconds",
        "it was sent before",
        "it was signed 31 seconds ahead of this clock; clocks may differ by 30 seconds",
    ]


def test_a_flood_adds_a_few_rows_a_minute() -> None:
    rows: list[str] = []
    now = [0.0]
    refused = RefusedMessages(lambda _, text: rows.append(text), lambda: now[0])
    for _ in range(1_000):
        refused.note("an offer", fault(Code.UNAUTHENTICATED, "why"))
    assert len(rows) == ROWS
    now[0] = 61
    refused.note("an offer", fault(Code.UNAUTHENTICATED, "why"))
    assert rows[ROWS:] == ["refused 990 more messages on the bus", "refused an offer on the bus: why"]


@pytest.mark.parametrize(
    ("name", "agents", "expected"),
    [
        ("stranger", [], "belongs to no hub in `[bus.hubs]`"),
        ("lab", ["helper", "boss"], "`[bus.hubs.lab]` does not let this hub host boss"),
    ],
)
async def test_a_hub_whose_messages_all_others_would_refuse_does_not_start(
    name: str, agents: list[str], expected: str
) -> None:
    hub = Hub(name=name, store=MemoryStore())
    for agent in agents:
        hub.add(agent, helper)
    join_bus(hub, BusSettings(url=shared_server().url, proofs=settings_for(name)), name=team_name())
    with pytest.raises(RemitError) as caught:
        async with hub:
            pass
    assert expected in caught.value.fault.message
    assert caught.value.fault.suggestion


async def helper(_: Brief) -> str:
    return "done"
