"""How hubs prove themselves to a real NATS server, and what they are told if they cannot."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from nats.aio.client import Client
from nats.aio.msg import Msg

from certificates import certificate
from doc_pages import page_text
from nats_accounts import NatsAccounts, NatsKey
from nats_server import NatsServer, team_name
from remit import Brief, Hub
from remit_cluster.nats.access import encryption, read_credentials
from remit_cluster.nats.bus import Bus, join_bus
from remit_cluster.nats.connection import BusSettings, Connection
from waiting import PATIENCE_S, eventually


@asynccontextmanager
async def connected(settings: BusSettings) -> AsyncGenerator[Connection]:
    connection = Connection(settings, "a hub")
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def started() -> Generator[ExitStack]:
    """Ends the servers of a test."""
    with ExitStack() as stack:
        yield stack


def server_with(started: ExitStack, *options: str) -> NatsServer:
    server = NatsServer(*options)
    started.callback(server.close)
    return server.start()


async def refused(settings: BusSettings, caplog: pytest.LogCaptureFixture, *words: str) -> None:
    caplog.clear()
    connection = Connection(settings, "a hub")
    opening = asyncio.create_task(connection.open())
    try:
        await eventually(lambda: all(word in caplog.text for word in words), f"{words}")
        assert not connection.connected
    finally:
        opening.cancel()
        await connection.close()


# ── encryption ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_tls_with_certificates_on_both_sides(
    tmp_path: Path, started: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs, other = (certificate(tmp_path, name) for name in ("server", "hub", "other"))
    options = ["--tlscert", str(ours.file), "--tlskey", str(ours.key), "--tlscacert", str(theirs.file), "--tlsverify"]
    url = server_with(started, "--tls", *options).url.replace("nats:", "tls:")
    good = BusSettings(url=url, authority=ours.file, certificate=theirs.file, private_key=theirs.key)
    async with connected(good) as connection:
        assert connection.connected
    await refused(replace(good, authority=None), caplog, "the system does not trust", "set `authority`")
    await refused(replace(good, authority=other.file), caplog, f"not signed by one in `authority` ({other.file})")
    await refused(BusSettings(url=url, authority=ours.file), caplog, "set `certificate` and `private_key`")
    await refused(
        replace(good, certificate=other.file, private_key=other.key),
        caplog,
        f"the server refused `certificate` ({other.file})",
    )


@pytest.mark.parametrize(
    ("host", "days", "expected"),
    [
        ("127.0.0.1", -1, "the certificate of the server has expired"),
        ("10.0.0.1", 1, "the certificate of the server is for another host than `url` names"),
    ],
)
async def test_a_certificate_that_is_not_valid_is_refused(
    tmp_path: Path, started: ExitStack, caplog: pytest.LogCaptureFixture, host: str, days: int, expected: str
) -> None:
    made = certificate(tmp_path, "server", host=host, days=days)
    server = server_with(started, "--tls", "--tlscert", str(made.file), "--tlskey", str(made.key))
    await refused(BusSettings(url=server.url.replace("nats:", "tls:"), authority=made.file), caplog, expected)


async def test_no_secret_is_sent_to_a_server_that_does_not_encrypt(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever answers in place of the server says that no encryption is needed, and waits for the token."""
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"auth_required":true}\r\n')
        received.append(await reader.read(1_000))
        writer.close()

    thief = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with thief:
        port = thief.sockets[0].getsockname()[1]
        await refused(
            BusSettings(url=f"tls://127.0.0.1:{port}", token="secret-token"), caplog, "the server does not encrypt"
        )
    assert received
    assert not any(received)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    made, other, wrong = certificate(tmp_path, "one"), certificate(tmp_path, "two"), tmp_path / "wrong"
    wrong.write_text("secret-content")
    settings = [
        ("`authority`", BusSettings(url="tls://bus", authority=wrong)),
        ("`certificate`", BusSettings(url="tls://bus", certificate=made.file, private_key=other.key)),
    ]
    for name, each in settings:
        with pytest.raises(ValueError, match=name) as caught:
            encryption(each)
        assert "secret-content" not in str(caught.value)
    accounts = NatsAccounts("team")
    good = accounts.credentials(tmp_path / "good", "team").read_text()
    seed = good.split("SEED-----\n")[1].split("\n")[0]
    misread = seed[:20] + ("B" if seed[20] == "A" else "A") + seed[21:]
    for content in ("secret-content", good.replace(seed, NatsKey("account").seed), good.replace(seed, misread)):
        wrong.write_text(content)
        with pytest.raises(ValueError, match="does not hold the credentials of a NATS user") as caught:
            read_credentials(wrong)
        assert not any(word in str(caught.value) for word in content.split() if len(word) > 10)


# ── who connects ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_token_and_a_user_are_proven_or_named(started: ExitStack, caplog: pytest.LogCaptureFixture) -> None:
    by_token = server_with(started, "--auth", "right-token").url
    by_user = server_with(started, "--user", "hub", "--pass", "right-word").url
    for settings in (
        BusSettings(url=by_token, token="right-token"),
        BusSettings(url=by_user, user="hub", password="right-word"),
    ):
        async with connected(settings) as connection:
            assert connection.connected
    await refused(BusSettings(url=by_token, token="wrong-token"), caplog, "the server refused `token`")
    await refused(BusSettings(url=by_token), caplog, "refused a hub without `credentials`, `token` or `user`")
    await refused(
        BusSettings(url=by_user, user="hub", password="wrong-word"), caplog, "the server refused `user` and `password`"
    )
    assert "wrong-" not in caplog.text


async def test_credentials_of_an_account_and_new_ones_after_they_expired(
    tmp_path: Path, started: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    accounts = NatsAccounts("one")
    config = tmp_path / "server.conf"
    config.write_text(accounts.config)
    url = server_with(started, "-c", str(config)).url
    foreign = NatsAccounts("one").credentials(tmp_path / "foreign.creds", "one")
    await refused(BusSettings(url=url, credentials=foreign), caplog, "the server refused `credentials`")
    mine = accounts.credentials(tmp_path / "hub.creds", "one", expires_s=2)
    async with connected(BusSettings(url=url, credentials=mine)) as connection:
        assert connection.connected
        await eventually(lambda: "refused `credentials`, which expired at" in caplog.text)
        assert not connection.connected
        accounts.credentials(mine, "one")
        await eventually(lambda: connection.connected)
    assert "connected to the bus" in caplog.text


# ── teams and permissions ─────────────────────────────────────────────────────────────────────────────────────────────


def worker_permissions(team: str, *agents: str) -> str:
    """The permissions of a worker, as the page bus-security lists them."""
    page = page_text("bus-security")
    block = page.split("```conf\n", 1)[1].split("```", 1)[0]
    assert "offer.researcher" in block
    lines: list[str] = []
    for line in block.replace("office", team).splitlines():
        lines += [line.replace("researcher", agent) for agent in agents] if "researcher" in line else [line]
    return "\n".join(lines)


class TwoTeams:
    """A server with an account for each of two teams; in the first, a worker has permissions of its own."""

    def __init__(self, folder: Path, started: ExitStack) -> None:
        self.folder = folder
        self.team = team_name()
        config = folder / "server.conf"
        config.write_text(
            f"""accounts {{
              one {{ jetstream: enabled, users: [
                {{ user: office, password: office-word }},
                {{ user: worker, password: worker-word, permissions: {worker_permissions(self.team, "helper")} }} ] }}
              two {{ jetstream: enabled, users: [ {{ user: other, password: other-word }} ] }}
            }}"""
        )
        self.url = server_with(started, "-c", str(config)).url

    def hub(self, user: str, agent: str | None) -> tuple[Hub, Bus]:
        """A hub of a team; those of different accounts have the same name, and a store of their own."""
        store = self.folder / ("two.db" if user == "other" else "one.db")
        hub = Hub(name=self.team, store=store, durability="process")
        if agent:
            hub.add(agent, helper, concurrency=1)
        settings = BusSettings(url=self.url, user=user, password=f"{user}-word", patience_s=0.3)
        return hub, join_bus(hub, settings, name=self.team)


async def helper(brief: Brief) -> str:
    brief.progress("began")
    await asyncio.sleep(0.05)
    return brief.objective


async def test_a_worker_with_the_documented_permissions_can_do_its_work_and_little_else(
    tmp_path: Path, started: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    teams = TwoTeams(tmp_path, started)
    (office, caller), (worker, host), (other, stranger) = (
        teams.hub(user, agent) for user, agent in (("office", "boss"), ("worker", "helper"), ("other", "helper"))
    )
    async with asyncio.timeout(PATIENCE_S), other, worker, office:
        requests = [asyncio.create_task(office.ask("helper", str(each), user="anna")) for each in range(4)]
        assert [(await each).unwrap() for each in requests] == ["0", "1", "2", "3"]  # one slot: three were queued
        assert (len(caller.hubs), len(host.hubs), len(stranger.hubs)) == (1, 0, 0)
        assert "permission" not in caplog.text
        thief, denied = Client(), list[str]()
        overheard: list[Msg] = []

        async def note(error: Exception) -> None:
            denied.append(str(error).split('"')[1])

        async def hear(message: Msg) -> None:
            overheard.append(message)

        await thief.connect(teams.url, user="worker", password="worker-word", error_cb=note)
        team = f"remit.{teams.team}"
        forbidden = [f"{team}.offer.boss", f"{team}.queued.boss", f"{team}.offer.>", ">", "$SYS.>"]
        for subject in forbidden:
            await thief.subscribe(subject, cb=hear)  # pyright: ignore[reportUnknownMemberType]
        unwritable = [
            f"$JS.API.STREAM.DELETE.remit-{teams.team}-queue",
            f"$JS.API.STREAM.PURGE.remit-{teams.team}-queue",
            f"$JS.API.STREAM.DELETE.KV_remit-{teams.team}-hosts",
            f"$JS.API.CONSUMER.MSG.NEXT.remit-{teams.team}-queue.boss-NORMAL",
            "remit.another.offer.helper",
        ]
        for subject in unwritable:
            await thief.publish(subject, b"")
        await thief.flush()
        await eventually(lambda: len(denied) == len(forbidden) + len(unwritable))
        assert sorted(denied) == sorted(each.lower() for each in (*forbidden, *unwritable))  # as the client reports it
        assert (await office.ask("helper", "again", user="anna")).unwrap() == "again"
        assert not overheard
        await thief.close()


async def test_a_missing_permission_is_named(
    tmp_path: Path, started: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "server.conf"
    config.write_text(
        'authorization { users: [ { user: hub, password: word, permissions: { publish: ["_INBOX.>", "$JS.API.>"], '
        'subscribe: ["_INBOX.>"] } } ] }'
    )
    team = team_name()
    hub = Hub(name=team, store=tmp_path / "hub.db", durability="process")
    hub.add("helper", helper)
    join_bus(hub, BusSettings(url=server_with(started, "-c", str(config)).url, user="hub", password="word"), name=team)
    async with hub, asyncio.timeout(PATIENCE_S):
        await eventually(lambda: f"lacks the permission to subscribe to remit.{team}.offer.helper" in caplog.text)
        await eventually(lambda: f"lacks the permission to publish to $KV.remit-{team}-hosts." in caplog.text)
        assert (await hub.ask("helper", "here", user="anna")).unwrap() == "here"
