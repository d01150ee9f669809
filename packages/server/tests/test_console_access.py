"""Browsers at a server: sessions, one-time links, what a page of another site can do, and the files of the page."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import ClientSession, CookieJar, hdrs

from new_stores import new_store
from remit import Answer, Brief, Hub
from remit.policy.reception import Permission, Sender
from remit.protocol.errors import Code, RemitError
from remit_server.all_operations import OPERATIONS
from remit_server.app import Api
from remit_server.console import pages
from remit_server.console.hosts import ConsoleHosts
from remit_server.console.sessions import (
    LINK_MS,
    LONGEST_MS,
    MOST,
    PROLONG_MS,
    SESSION_MS,
    ConsoleSessions,
    SpentIds,
    SpentInFile,
    SpentInStore,
)
from remit_server.refusals import FAILURES
from remit_server.server import Server
from remit_server.transports.addresses import listening
from remit_server.transports.credentials.incoming import Authenticator, KnownSender
from serving import client_of, console_of, gate_of, got, posted
from waiting import PATIENCE_S

OPS = Sender(name="ops", users=frozenset(), permissions=frozenset({Permission.READ, Permission.CONTROL}))
READER = Sender(name="reader", users=frozenset(), targets=frozenset({"echo"}), permissions=frozenset({Permission.READ}))
NORTH = Sender(name="north", is_hub=True)
WEB = Sender(name="web")


class Site(NamedTuple):
    """A server with the console, two runs, and how to open it in a browser."""

    server: Server
    gate: Authenticator
    link: Callable[[str], str]
    runs: dict[str, str]

    def browser(self) -> ClientSession:
        return ClientSession(self.server.address, cookie_jar=CookieJar(unsafe=True))

    async def signed_in(self, own: ClientSession, client: str) -> dict[str, str]:
        """Sign a browser in by a link, as its page does, and return the header that its acts need."""
        async with own.get(self.link(client), allow_redirects=False) as reply:
            page, _, key = reply.headers["location"].partition("#key=")
            assert (reply.status, page) == (303, "/")
        own.headers["x-remit-page-key"] = key
        return {"origin": self.server.address}


@pytest.fixture
async def site(hub: Hub, tmp_path: Path) -> AsyncGenerator[Site]:
    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return f"secret {brief.text}"

    @hub.agent("slow")
    async def slow(_: Brief) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    assert echo
    assert slow
    async with hub, served(hub, gate_of(WEB, OPS, READER, NORTH), page_in(tmp_path)) as found:
        yield found


@asynccontextmanager
async def served(hub: Hub, gate: Authenticator, folder: Path) -> AsyncGenerator[Site]:
    with listening("127.0.0.1", 0) as bound:
        console = console_of(hub, gate, bound.getsockname()[1], folder)
        async with Server(Api(hub, gate, console=console), bound=bound, drain_s=1) as server, client_of(server) as web:
            _, echoed = await posted(web, {"target": "echo", "user": "anna", "objective": "plan"})
            ask = {"target": "slow", "user": "anna", "objective": "plan"}
            _, slowed = await posted(web, {**ask, "id": "s-1"}, Prefer="respond-async")
            yield Site(server, gate, console.link, {"echo": echoed["run"], "slow": slowed["run"]})


SCRIPT = b"alert(1);" * 200


def page_in(folder: Path) -> Path:
    """Write the files of a small page, as a build leaves them."""
    built = folder / "built"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<!doctype html><title>Remit</title>")
    (built / "assets" / "app-1a2b.js").write_bytes(SCRIPT)
    (built / ".source").write_text("a digest of its sources")
    return built


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_browser_has_the_roles_of_its_client_and_no_more(site: Site) -> None:
    seen = {"ops": {"echo", "slow"}, "reader": {"echo"}, "web": {"echo", "slow"}}
    for client, names in seen.items():
        async with site.browser() as own:
            here = await site.signed_in(own, client)
            _, told = await got(own, "/v1/console")
            (sender, _) = site.gate.client(client) or (None, None)
            assert sender is not None
            assert told["who"]["permissions"] == sorted(sender.permissions)
            assert (told["team"], told["views"]) == ("office", ["operator"])
            _, found = await got(own, "/v1/runs")
            assert {each["agent"] for each in found["runs"]} == names
            assert (await got(own, "/v1/audit"))[0] == (200 if "read" in sender.permissions else 403)
            assert (await got(own, "/metrics"))[0] == 401, "a cookie opens the API alone"
            async with own.delete("/v1/users/anna", headers=here) as reply:
                assert reply.status == 403
            async with own.post(f"/v1/delegations/{site.runs['slow']}/cancel", json={}, headers=here) as reply:
                assert reply.status == (404 if client == "reader" else 200)


async def test_a_link_counts_once_for_all_processes_and_a_session_for_each(
    site: Site, hub: Hub, tmp_path: Path
) -> None:
    """Another worker has the same store, and nothing else."""
    gate = gate_of(WEB, OPS)
    other = console_of(hub, gate, site.server.servers[0].sockets[0].getsockname()[1], tmp_path)
    link = site.link("ops")
    async with site.browser() as own, site.browser() as second:
        async with own.get(link, allow_redirects=False) as reply:
            value = SimpleCookie(reply.headers[hdrs.SET_COOKIE]).popitem()[1].value
        assert reply.status == 303
        with pytest.raises(RemitError, match="used before"):
            await other.sessions.enter(link.partition("code=")[2])
        async with second.get(link) as reply:
            assert reply.status == 401
        opened = await other.sessions.open(value)
        assert opened is not None
        assert opened[1].name == "ops"
        here = {"origin": site.server.address, "x-remit-page-key": other.sessions.page_key(opened[0])}
        async with own.delete("/v1/console/session", headers=here) as reply:
            assert reply.status == 200
        assert await other.sessions.open(value) is None


async def test_a_client_that_is_removed_or_has_another_token_is_signed_out(
    site: Site, hub: Hub, tmp_path: Path
) -> None:
    async with site.browser() as own:
        await site.signed_in(own, "ops")
        (kept,) = own.cookie_jar
    gone = gate_of(WEB)
    rotated = Authenticator([KnownSender(name="ops", token="another token")], wall_ms=lambda: 0)
    less = gate_of(Sender(name="ops", targets=frozenset()))
    for gate, expected in ((site.gate, "ops"), (gone, None), (rotated, None), (less, "ops")):
        opened = await console_of(hub, gate).sessions.open(kept.value)
        assert (opened[1].name if opened else None) == expected
        assert gate is not less or (opened and not opened[1].permissions)


async def test_hubs_and_users_of_identity_providers_cannot_sign_in(site: Site) -> None:
    async with client_of(site.server, "north") as hub_client, hub_client.post("/v1/console/links") as reply:
        assert reply.status == 403
        assert "no browser can be signed in as north" in await reply.text()
    async with site.browser() as own:
        here = {"origin": site.server.address}
        async with own.post("/v1/console/session", json={"token": "north"}, headers=here) as reply:
            assert (reply.status, "set-cookie" in reply.headers) == (403, False)


async def test_typed_tokens_are_checked_and_cannot_be_guessed(site: Site) -> None:
    async with site.browser() as own:
        here = {"origin": site.server.address}
        wrong: list[Any] = [{"token": 1}, {}, {"token": "ops", "more": 1}, [], {"token": "x" * 30_000}]
        for body in wrong:
            async with own.post("/v1/console/session", json=body, headers=here) as reply:
                assert reply.status in (400, 413), body
        async with own.post("/v1/console/session", json={"token": "ops"}, headers=here) as reply:
            assert (reply.status, (await reply.json())["who"]["name"]) == (201, "ops")
            assert reply.headers["cache-control"] == "no-store"
        for _ in range(FAILURES):
            async with own.post("/v1/console/session", json={"token": "guess"}, headers=here) as reply:
                assert reply.status == 401
        for token, status in (("guess", 429), ("reader", 429), ("ops", 201)):
            async with own.post("/v1/console/session", json={"token": token}, headers=here) as reply:
                assert reply.status == status, "one that was let in from there before still is"


async def test_a_request_with_a_token_is_as_before_whatever_cookie_it_has(site: Site) -> None:
    async with site.browser() as own:
        await site.signed_in(own, "ops")
        bearer = {"authorization": "Bearer web", "origin": "http://evil.example", "sec-fetch-site": "cross-site"}
        assert (await got(own, "/v1/audit", **bearer))[0] == 403, "it is the token's permission that counts"
        assert (await got(own, "/v1/runs", **bearer))[0] == 200
        _, told = await got(own, "/v1/console", **bearer)
        assert (told["who"]["name"], told["page_key"]) == ("web", "")


# ── pages of other sites ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_another_site_can_use_neither_a_session_nor_a_link_nor_a_token(site: Site, wrong: dict[str, str]) -> None:
    async with site.browser() as own:
        here = await site.signed_in(own, "ops")
        assert (await got(own, "/v1/runs", **wrong))[0] == 403
        cancel = f"/v1/delegations/{site.runs['slow']}/cancel"
        async with own.post(cancel, json={}, headers={**here, **wrong}) as reply:
            assert reply.status == 403
        async with own.post("/v1/console/session", json={"token": "ops"}, headers={**here, **wrong}) as reply:
            assert (reply.status, "set-cookie" in reply.headers) == (403, False)
        link = site.link("ops")
        async with own.get(link, headers=wrong, allow_redirects=False) as reply:
            assert (reply.status, "set-cookie" in reply.headers) == (403, False)
        async with own.get(link, allow_redirects=False) as reply:
            assert reply.status == 303, "it is not spent by that"


async def test_a_request_of_a_browser_needs_the_key_of_its_page_and_an_act_its_origin(site: Site) -> None:
    async with site.browser() as own, site.browser() as second:
        here = await site.signed_in(own, "ops")
        await site.signed_in(second, "ops")
        cancel = f"/v1/delegations/{site.runs['slow']}/cancel"
        async with own.post(cancel, json={}) as reply:
            assert reply.status == 403, "without its origin"
        for key in ("", "x", second.headers["x-remit-page-key"]):
            wrong = {**here, "x-remit-page-key": key}
            async with own.post(cancel, json={}, headers=wrong) as reply:
                assert reply.status == 401, key
            for path in ("/v1/runs", "/v1/console"):
                assert (await got(own, path, **wrong))[0] == 401, "the key is told once, at the sign-in"
        async with own.post(cancel, json={}, headers=here) as reply:
            assert reply.status == 200
        _, told = await got(own, "/v1/console")
        assert told["page_key"] == ""


@pytest.mark.parametrize("value", ["", "x", "x.y", "eyJ9.eyJ9", "a" * 5_000, "W10.AAAA", '"; drop', "[1].[2]", "é.é"])
async def test_a_cookie_that_was_not_made_here_is_none(site: Site, value: str) -> None:
    port = site.server.servers[0].sockets[0].getsockname()[1]
    async with ClientSession(site.server.address) as session:
        status, told = await got(session, "/v1/console", cookie=f"a=b; remit_{port}={value}")
    assert (status, told["fault"]["code"]) == (401, "UNAUTHENTICATED")


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture(params=["store", "file"])
async def spent(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[tuple[_Clock, Callable[[], SpentIds]]]:
    """Yield a clock, and what opens the record of used ids as another process does."""
    clock = _Clock()
    if request.param == "file":
        yield clock, lambda: SpentInFile(tmp_path / "console.json", clock)
        return
    async with Hub(store=new_store(tmp_path / "spent.db")) as hub:
        yield clock, lambda: SpentInStore(hub.store, clock)


async def test_links_and_sessions_expire(spent: tuple[_Clock, Callable[[], SpentIds]]) -> None:
    clock, opened = spent
    sessions = ConsoleSessions(b"k" * 32, gate_of(OPS), opened(), clock)
    late = sessions.code("ops")
    clock.now_ms += LINK_MS + 1
    for wrong in (late, "", "x" * 5_000, "\udcff", sessions.sealed(sessions.begin("ops"))):
        with pytest.raises(RemitError) as raised:
            await sessions.enter(wrong)
        assert raised.value.fault.code is Code.UNAUTHENTICATED
    session = await sessions.enter(sessions.code("ops"))
    began = clock.now_ms
    assert sessions.prolonged(session) is None, "not with every request"
    while True:
        clock.now_ms += 2 * PROLONG_MS
        assert await sessions.open(sessions.sealed(session)) is not None
        longer = sessions.prolonged(session)
        if longer is None:
            break
        session = longer
    assert clock.now_ms - began > LONGEST_MS - SESSION_MS
    clock.now_ms = began + LONGEST_MS + 1
    assert await sessions.open(sessions.sealed(session)) is None


async def test_a_used_id_is_used_for_every_process_until_it_has_expired(
    spent: tuple[_Clock, Callable[[], SpentIds]],
) -> None:
    clock, opened = spent
    first = opened()
    assert not await first.is_spent("a")
    assert await first.spend("a", clock.now_ms + 1_000)
    assert not await first.spend("a", clock.now_ms + 1_000)
    assert await opened().is_spent("a")
    assert not await opened().spend("a", clock.now_ms + 1_000)
    clock.now_ms += 2_000
    assert await opened().spend("b", clock.now_ms + 1_000), "what has expired is forgotten with the next one"
    assert not await opened().is_spent("a")
    assert await opened().is_spent("b")


async def test_more_sign_ins_than_people_make_are_refused_and_none_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "console.json"
    path.write_text(json.dumps({f"id-{each}": 2_000_000 for each in range(MOST)}))
    ids = SpentInFile(path, _Clock())
    with pytest.raises(RemitError) as raised:
        await ids.spend("one more", 2_000_000)
    assert raised.value.fault.code is Code.OVERLOADED
    assert await ids.is_spent("id-0")


async def test_a_record_of_used_ids_that_cannot_be_read_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "console.json").write_text("{")
    sessions = ConsoleSessions(b"k" * 32, gate_of(OPS), SpentInFile(tmp_path / "console.json", _Clock()), _Clock())
    with pytest.raises(RemitError) as raised:
        await sessions.open(sessions.sealed(sessions.begin("ops")))
    assert raised.value.fault.code is Code.STORE_UNAVAILABLE


# ── host names ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("hosts", "host", "origin"),
    [
        (ConsoleHosts(8080), "localhost:8080", "http://localhost:8080"),
        (ConsoleHosts(8080), "LOCALHOST:8080", "http://localhost:8080"),
        (ConsoleHosts(8080), "[::1]:8080", "http://[::1]:8080"),
        (ConsoleHosts(8080), "localhost", None),
        (ConsoleHosts(80), "localhost", "http://localhost"),
        (ConsoleHosts(8443, tls=True), "127.0.0.1:8443", "https://127.0.0.1:8443"),
        (ConsoleHosts(8080, host="192.168.1.5"), "192.168.1.5:8080", "http://192.168.1.5:8080"),
        (ConsoleHosts(8080, host="192.168.1.5"), "127.0.0.1:8080", None),
        (ConsoleHosts(8080, host="fe80::1"), "[fe80::1]:8080", "http://[fe80::1]:8080"),
        (ConsoleHosts(8080, host="0.0.0.0"), "192.168.1.5:8080", None),
        (ConsoleHosts(8080, host="0.0.0.0", more=("Ops.Example.com",)), "ops.example.com", "https://ops.example.com"),
        (ConsoleHosts(8080, more=("ops.example.com:444",)), "ops.example.com:444", "https://ops.example.com:444"),
        (ConsoleHosts(8080, more=("ops.example.com:444",)), "ops.example.com", None),
        (ConsoleHosts(8080, more=("http://intranet",)), "intranet:8080", "http://intranet:8080"),
    ],
)
def test_only_known_host_names_are_answered(hosts: ConsoleHosts, host: str, origin: str | None) -> None:
    if origin is None:
        with pytest.raises(RemitError, match="not one of this server"):
            hosts.origin({"host": host})
        return
    assert hosts.check({"host": host, "origin": origin, "sec-fetch-site": "same-origin"}, "POST") == origin
    name, value = hosts.cookie(origin, "s")
    assert name == b"set-cookie"
    assert value.endswith(b"Secure") is value.startswith(b"__Host-remit_") is origin.startswith("https:")
    sent = value.decode().partition(";")[0]
    assert hosts.cookie_in({"host": host, "cookie": f"other=1; {sent}"}) == "s"


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_pages_are_for_everybody_and_say_nothing(site: Site) -> None:
    html = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    async with ClientSession(site.server.address, auto_decompress=False) as stranger:
        for path in ("/", "/runs", "/runs/01a1df/d/0.1", "/index.html", "/chat"):
            async with stranger.get(path, headers=html) as reply:
                assert (reply.status, reply.content_type) == (200, "text/html"), path
                assert "<title>Remit</title>" in await reply.text()
                assert reply.headers["content-security-policy"] == pages.CSP
                assert reply.headers["x-content-type-options"] == "nosniff"
                assert reply.headers["referrer-policy"] == "no-referrer"
                assert reply.headers["cross-origin-opener-policy"] == "same-origin"
                assert "camera=()" in reply.headers["permissions-policy"]
                assert reply.headers["cache-control"] == "no-cache"
            async with stranger.get(path, headers={**html, "host": "evil.example"}) as reply:
                assert reply.status == 403
        for path in ("/runs", "/.source", "/assets/none.js", "/assets/../index.html/x", "/assets/%2e%2e/.source"):
            async with stranger.get(path) as reply:
                assert reply.status == 404, path
        for path in ("/v1/runs", "/v1/console"):
            assert (await got(stranger, path, **html))[0] == 401


@pytest.mark.parametrize(
    ("accepted", "encoding", "body"),
    [
        ("gzip, deflate, br", "gzip", gzip.compress(SCRIPT, 9, mtime=0)),
        ("br;q=0, gzip;q=0.5", "gzip", gzip.compress(SCRIPT, 9, mtime=0)),
        ("br, gzip;q=0", None, SCRIPT),
        ("identity", None, SCRIPT),
    ],
)
async def test_a_file_is_sent_in_the_best_form_and_once(
    site: Site, accepted: str, encoding: str | None, body: bytes
) -> None:
    path, headers = "/assets/app-1a2b.js", {"accept-encoding": accepted}
    async with ClientSession(site.server.address, auto_decompress=False) as session:
        async with session.get(path, headers=headers) as reply:
            assert (reply.headers.get("content-encoding"), await reply.read()) == (encoding, body)
            assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert reply.headers["content-type"] == "text/javascript; charset=utf-8"
            tag = reply.headers["etag"]
        async with session.get(path, headers={**headers, "if-none-match": f'"x", W/{tag}'}) as reply:
            assert (reply.status, await reply.read()) == (304, b"")
        async with session.head(path, headers=headers) as reply:
            assert (reply.status, reply.headers["content-length"]) == (200, str(len(body)))


async def test_an_installation_without_the_console_says_what_to_do(hub: Hub, tmp_path: Path) -> None:
    hub.agent("echo")(_nothing)
    hub.agent("slow")(_nothing)
    async with (
        hub,
        served(hub, gate_of(WEB), tmp_path / "none") as site,
        ClientSession(site.server.address) as session,
        session.get("/") as reply,
    ):
        assert reply.status == 503
        assert "make" in await reply.text()
    assert not pages.is_built(tmp_path / "none")


async def _nothing(_: Brief) -> Any:
    return ""


# ── an operator of one team ───────────────────────────────────────────────────────────────────────────────────────────


async def test_an_operator_of_one_team_finds_nothing_of_another_at_any_address(hub: Hub, tmp_path: Path) -> None:
    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return f"said {brief.text}"

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        return f"hidden {brief.text}"

    assert echo
    assert slow
    may = frozenset({Permission.READ, Permission.CONTROL})
    own = Sender(name="reader", users=frozenset(), targets=frozenset({"echo"}), permissions=may)
    gate = gate_of(WEB, own)
    async with (
        hub,
        served(hub, gate, page_in(tmp_path)) as site,
        client_of(site.server) as web,
        site.browser() as browser,
    ):
        ask = {"target": "slow", "user": "zoe", "objective": "confidential", "session": "of-zoe"}
        _, kept = await posted(web, ask)
        await posted(web, {"target": "echo", "user": "anna", "objective": "ours"})
        here = await site.signed_in(browser, "reader")
        last = (await hub.store.records(limit=1_000))[-1].seq
        names = {"id": kept["run"], "run": kept["run"], "name": "slow", "path": kept["run"], "code": "x"}
        looked = 0
        for path in (each.path for each in OPERATIONS if each.method == "GET"):
            if path.startswith("/v1/") and path not in ("/v1/events", "/v1/team"):
                for seq in range(1, last + 1) if "{seq}" in path else (0,):
                    async with browser.get(path.format_map({**names, "seq": seq}), allow_redirects=False) as reply:
                        text = await reply.text()
                    looked += 1
                    for word in ("confidential", "hidden", "zoe", kept["run"]):
                        assert word not in text.replace(f"`{kept['run']}`", ""), (path, seq, text)
        assert looked > 20
        for path in ("cancel", "retry", "resume"):
            async with browser.post(f"/v1/runs/{kept['run']}/{path}", json={}, headers=here) as reply:
                assert reply.status == 404, path
        async with browser.get("/v1/events") as stream:
            await posted(web, ask)
            await posted(web, {"target": "echo", "user": "anna", "objective": "the last"})
            heard = b""
            async with asyncio.timeout(PATIENCE_S):
                while b"the last" not in heard:
                    heard += await stream.content.readany()
        assert b"zoe" not in heard
        assert b"confidential" not in heard
