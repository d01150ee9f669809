"""Logins of a person at remote MCP servers: with a real authorization server, and real files and processes."""

import asyncio
import json
import logging
import stat
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import httpx2
import pytest
from aiohttp import ClientSession
from mcp.client.auth import OAuthFlowError

from commands import popen, run_program
from oauth_servers import LoginServer, browser, guarded
from remit import Brief, Code, Hub, RemitError, Response
from remit_models.mcp import add_mcp
from remit_models.mcp.logins import LoginFile, StoredLogin
from remit_models.mcp.oauth import OauthTokens
from remit_models.mcp.oauth_flows import FlowStorage, LoginProvider, LoopbackRedirect, drive
from remit_models.mcp.oauth_settings import OauthLogin
from remit_models.mcp.settings import Address
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S, eventually

READER = Path(__file__).with_name("login_reader.py")
WRITER = Path(__file__).with_name("login_writer.py")


async def read(url: str, uses: int = 1, **options: Any) -> Response:
    """Let an agent of a new hub use the tool of a server."""
    hub = Hub(store=MemoryStore())
    add_mcp(hub, "far", url=url, auth="oauth", allow=["read"], **options)

    @hub.agent("clerk", tools=["far.read"])
    async def clerk(brief: Brief) -> object:
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(brief.use("far.read")) for _ in range(uses - 1)]
            letter = await brief.use("far.read") if others else None
        return letter or await brief.use("far.read")

    assert clerk
    async with asyncio.timeout(PATIENCE_S), hub:
        return await hub.ask("clerk", "read", user="u")


def kept(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "far.json").read_bytes())


async def test_a_login_is_kept_in_a_private_file_and_serves_the_next_process(tmp_path: Path) -> None:
    """Proves the whole flow, the modes of the file, and that a stored login needs no browser."""
    folder = tmp_path / "logins"
    async with guarded() as server:
        assert (await read(server.url, logins=folder, browser=browser)).unwrap() == "the letter"
        assert (await read(server.url, logins=folder)).unwrap() == "the letter"
    assert [path for path, _, _ in server.logins.requests] == ["/authorize", "/token"]
    assert all(each["resource"] == server.url for _, _, each in server.logins.requests)
    assert stat.S_IMODE((folder / "far.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_run_without_a_login_says_which_command_to_type(tmp_path: Path) -> None:
    """Proves that no browser is opened in a run, and that a login helps at once, without a pause."""
    async with guarded() as server:
        answer = await read(server.url, logins=tmp_path)
        assert answer.fault is not None
        assert answer.fault.code == Code.TEAM_INVALID
        assert answer.fault.message == "MCP server far wants a login"
        assert answer.fault.suggestion == "A person logs in: remit mcp login far"
    assert server.logins.requests == []


async def test_tokens_are_renewed_silently_by_their_own_issuer(tmp_path: Path) -> None:
    """Proves renewal after a restart, when only the file knows the issuer, and before the server refuses."""
    async with guarded() as server:
        server.logins.lasts_s = 0
        await read(server.url, logins=tmp_path, browser=browser)
        server.refused, server.logins.lasts_s = 0, 3_600
        assert (await read(server.url, logins=tmp_path)).unwrap() == "the letter"
        assert (server.refused, server.logins.grants[-1]) == (0, "refresh_token")
        server.logins.expire()
        assert (await read(server.url, logins=tmp_path)).unwrap() == "the letter"
    assert server.refused == 1
    assert server.logins.registered == 1
    assert kept(tmp_path)["access_token"] in server.logins.valid


async def test_two_processes_renew_a_token_once(tmp_path: Path) -> None:
    """Proves that a refresh token is used once, though both processes were refused at the same time."""
    async with guarded() as server:
        await read(server.url, logins=tmp_path, browser=browser)
        server.logins.expire()
        server.refused = 0
        server.logins.before_refresh.clear()
        command = [sys.executable, str(READER), server.url, str(tmp_path)]
        readers = [asyncio.ensure_future(asyncio.to_thread(run_program, command)) for _ in range(2)]
        await server.refuses(2)
        server.logins.before_refresh.set()
        async with asyncio.timeout(PATIENCE_S):
            outputs = [(await each).stdout for each in readers]
    assert outputs == ["the letter\n", "the letter\n"]
    assert server.logins.grants == ["authorization_code", "refresh_token"]


def test_a_process_that_is_killed_while_it_writes_leaves_a_whole_login(tmp_path: Path) -> None:
    """Proves that the file is always one of the written logins, and that a leftover draft does not matter."""
    for count in range(1, 12):
        with popen([sys.executable, str(WRITER), str(tmp_path)], stdout=PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(count):
                assert writer.stdout.readline()
            writer.kill()
        stored = LoginFile(tmp_path, "far").read()
        assert stored is not None
        assert stored.access_token == stored.refresh_token
    login = StoredLogin(url="https://x", issuer="https://y", access_token="after")
    LoginFile(tmp_path, "far").write(login)
    assert LoginFile(tmp_path, "far").read() == login
    assert sorted(each.name for each in tmp_path.iterdir()) == ["far.json", "far.lock"]


async def test_a_refused_renewal_wants_a_new_login_and_is_not_repeated(tmp_path: Path) -> None:
    async with guarded() as server:
        await read(server.url, logins=tmp_path, browser=browser)
        server.logins.withdraw()
        for _ in range(2):
            answer = await read(server.url, logins=tmp_path)
            assert answer.fault is not None
            assert answer.fault.suggestion == "A person logs in: remit mcp login far"
    assert server.logins.grants == ["authorization_code", "refresh_token"]


async def test_an_issuer_that_is_down_does_not_end_a_login(tmp_path: Path) -> None:
    async with guarded() as server:
        await read(server.url, logins=tmp_path, browser=browser)
        server.logins.expire()
        server.logins.token_reply = (503, {})
        answer = await read(server.url, logins=tmp_path)
        assert answer.fault is not None
        assert answer.fault.code == Code.DELEGATION_UNAVAILABLE
        server.logins.token_reply = None
        assert (await read(server.url, logins=tmp_path)).unwrap() == "the letter"


async def test_a_login_is_for_one_server_and_one_issuer(tmp_path: Path) -> None:
    """Proves that a changed address or issuer in the team gets none of the tokens."""
    async with guarded() as server, guarded() as other:
        await read(server.url, logins=tmp_path, browser=browser)
        assert not (await read(other.url, logins=tmp_path)).ok
        assert set(other.tokens) == {""}
        server.tokens.clear()
        assert not (await read(server.url, logins=tmp_path, issuer=other.logins.address)).ok
        assert set(server.tokens) == {""}


async def test_a_hostile_server_cannot_lead_a_secret_to_another_issuer(tmp_path: Path) -> None:
    """Proves that the secret of a client is sent to the issuer of the team alone, and nobody is asked to log in."""
    evil = LoginServer()
    opened: list[str] = []

    async def note(address: str) -> None:
        opened.append(address)

    async with guarded() as server, evil.serving():
        honest, server.logins = server.logins, evil
        answer = await read(
            server.url,
            logins=tmp_path,
            browser=note,
            issuer=honest.address,
            client_id="office",
            client_secret="open sesame",
        )
        assert answer.fault is not None
        assert f"the issuer of the team is {honest.address}" in answer.fault.message
    assert (opened, evil.requests, honest.requests) == ([], [], [])


async def test_a_known_client_proves_itself_and_its_secret_is_not_stored(tmp_path: Path) -> None:
    async with guarded() as server:
        known: dict[str, Any] = {
            "logins": tmp_path,
            "issuer": server.logins.address,
            "client_id": "office",
            "client_secret": "open sesame",
        }
        assert (await read(server.url, browser=browser, **known)).ok
        server.logins.expire()
        assert (await read(server.url, **known)).ok
    proofs = {proof for path, proof, _ in server.logins.requests if path == "/token"}
    assert proofs == {"Basic b2ZmaWNlOm9wZW4lMjBzZXNhbWU="}
    assert b"sesame" not in (tmp_path / "far.json").read_bytes()
    assert server.logins.registered == 0


async def test_an_encrypted_server_cannot_lead_to_an_address_that_is_not(tmp_path: Path) -> None:
    """Proves that a server on the internet cannot have this machine ask its own unencrypted services."""
    async with guarded() as server:
        about = f"{server.address}/.well-known/oauth-protected-resource/mcp"
        refusal = httpx2.Response(401, headers={"www-authenticate": f'Bearer resource_metadata="{about}"'})
        provider = LoginProvider("https://far.example/mcp", OauthLogin(), FlowStorage())
        with pytest.raises(RemitError, match="is not encrypted"):
            await drive(provider, httpx2.Request("POST", "https://far.example/mcp"), refusal, "far", None)


async def test_nobody_types_a_password_into_a_page_that_is_not_encrypted() -> None:
    """Proves it for an encrypted server whose issuer has an unencrypted page."""
    provider = LoginProvider("https://far.example/mcp", OauthLogin(), FlowStorage())
    handler = provider.context.redirect_handler
    assert handler is not None
    with pytest.raises(OAuthFlowError, match=r"the page for the login at .* is not encrypted"):
        await handler("http://login.example/authorize?state=s")


async def test_a_login_without_a_folder_lasts_as_long_as_its_hub() -> None:
    """Proves that a new connection of the same hub needs no further login."""
    async with guarded() as server:
        hub = Hub(store=MemoryStore())
        add_mcp(hub, "far", url=server.url, auth="oauth", browser=browser, allow=["read"])

        @hub.agent("clerk", tools=["far.read"])
        async def clerk(brief: Brief) -> object:
            return await brief.use("far.read")

        assert clerk
        for _ in range(2):
            async with asyncio.timeout(PATIENCE_S), hub:
                assert (await hub.ask("clerk", "read", user="u")).ok
    assert len(server.logins.requests) == 2


@pytest.mark.parametrize("pkce", [None, ["plain"]])
async def test_an_issuer_without_pkce_gets_no_login(tmp_path: Path, pkce: list[str] | None) -> None:
    async with guarded() as server:
        server.logins.pkce = pkce
        answer = await read(server.url, logins=tmp_path, browser=browser)
    assert answer.fault is not None
    assert "PKCE" in answer.fault.message
    assert server.logins.requests == []


async def test_further_rights_need_a_login_that_asks_for_them(tmp_path: Path) -> None:
    """Proves that the error names the scope, a new login keeps the old ones, and none is asked for twice."""
    async with guarded() as server:
        await read(server.url, logins=tmp_path, browser=browser, scope="post")
        server.needs = "files:read"
        answer = await read(server.url, logins=tmp_path, scope="post")
        assert answer.fault is not None
        assert answer.fault.suggestion == "Log in again: remit mcp login far --scope files:read"
        assert (await read(server.url, logins=tmp_path, scope="post", browser=browser)).ok
        scopes = [each.get("scope") for path, _, each in server.logins.requests if path == "/authorize"]
        assert scopes == ["post", "post files:read"]
        server.logins.valid = dict.fromkeys(server.logins.valid, "post")
        answer = await read(server.url, logins=tmp_path, scope="post", browser=browser)
        assert answer.fault is not None
        assert answer.fault.code == Code.PERMISSION_DENIED
        assert len(server.logins.requests) == 4


@pytest.mark.parametrize("reply", [(400, {"error": "no secret-1 here"}), (200, {"token": "secret-1"})])
async def test_what_an_issuer_says_is_neither_logged_nor_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reply: tuple[int, dict[str, str]]
) -> None:
    """Proves it for answers that are refusals and for answers that cannot be read."""
    caplog.set_level(logging.DEBUG)
    async with guarded() as server:
        server.logins.token_reply = reply
        answer = await read(server.url, logins=tmp_path, browser=browser)
    assert answer.fault is not None
    assert "gave no token" in answer.fault.message
    codes = [each["code"] for path, _, each in server.logins.requests if path == "/token"]
    for secret in ("secret-1", *codes):
        assert secret not in caplog.text + repr(answer)


async def test_tokens_are_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Proves it for a login, a renewal and their use, with all that any library logs."""
    caplog.set_level(logging.DEBUG)
    async with guarded() as server:
        await read(server.url, logins=tmp_path, browser=browser)
        first = kept(tmp_path)
        server.logins.expire()
        assert (await read(server.url, logins=tmp_path)).ok
    assert "/token" in caplog.text, "what libraries log is there"
    for login in (first, kept(tmp_path)):
        assert login["access_token"] not in caplog.text
        assert login["refresh_token"] not in caplog.text


@pytest.mark.parametrize(("issuer", "is_own"), [("SELF", True), ("SELF/oauth", True), ("https://bank.example", False)])
async def test_an_old_server_names_an_issuer_of_its_own_origin(tmp_path: Path, issuer: str, is_own: bool) -> None:
    """Proves that a server without resource metadata (2025-03-26) cannot pass for the issuer of somebody else."""
    async with guarded(issuer) as server:
        answer = await read(server.url, logins=tmp_path, browser=browser)
        assert answer.ok == is_own
        if is_own:
            assert kept(tmp_path)["issuer"] == server.address
            server.logins.expire()
            assert (await read(server.url, logins=tmp_path)).ok
    assert bool(server.logins.requests) == is_own


async def test_a_declined_login_is_an_error(tmp_path: Path) -> None:
    async with guarded() as server:
        server.logins.declines = True
        answer = await read(server.url, logins=tmp_path, browser=browser)
    assert answer.fault is not None
    assert answer.fault.message == "the login was refused (access_denied)"


async def test_only_the_answer_to_the_login_itself_counts() -> None:
    """Proves that any page that calls the port changes nothing."""
    async with LoopbackRedirect() as redirect, ClientSession() as session:
        redirect.expect("the state")
        for query in ("?code=evil&state=other", "?code=evil", "?error=evil"):
            async with session.get(f"{redirect.uri}{query}") as reply:
                assert reply.status == 404
        async with session.get(f"{redirect.uri}?code=good&state=the%20state") as reply:
            assert reply.status == 200
        assert (await redirect.answer())["code"] == "good"


async def test_a_second_login_uses_the_registration_of_the_first(tmp_path: Path) -> None:
    """Proves it while the port is free, and that a hub whose port is taken registers again."""
    async with guarded() as server:
        address = Address(url=server.url, oauth=OauthLogin(folder=tmp_path))
        first = await OauthTokens("far", address).log_in(browser)
        assert (await OauthTokens("far", address).log_in(browser)).client == first.client
        assert server.logins.registered == 1
        (uri,) = first.client["redirect_uris"]
        async with LoopbackRedirect(int(uri.rpartition(":")[2].partition("/")[0])):
            await OauthTokens("far", address).log_in(browser)
        assert server.logins.registered == 2


async def test_calls_with_a_login_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Proves that two uses are under way at once: the server answers neither before it has both."""
    async with guarded() as server:
        server.together = 2
        assert (await read(server.url, uses=2, logins=tmp_path, browser=browser)).ok
    assert len(server.logins.requests) == 2


async def test_a_cancelled_run_still_stores_a_renewed_token(tmp_path: Path) -> None:
    """Proves that the token is stored though nobody waits for it: the old refresh token works no more."""
    async with guarded() as server:
        await read(server.url, logins=tmp_path, browser=browser)
        before = kept(tmp_path)["refresh_token"]
        server.logins.expire()
        server.logins.before_refresh.clear()
        tokens = OauthTokens("far", Address(url=server.url, oauth=OauthLogin(folder=tmp_path)))
        async with httpx2.AsyncClient(auth=tokens) as client:
            request = asyncio.ensure_future(client.post(server.url, json={}))
            await server.refuses(2)
            await eventually(lambda: "refresh_token" in server.logins.grants, "a renewal")
            request.cancel()
            server.logins.before_refresh.set()
            await tokens.close()
        assert kept(tmp_path)["refresh_token"] != before
        assert (await read(server.url, logins=tmp_path)).ok


def test_keys_that_do_not_go_together_are_refused() -> None:
    """Proves each rule of the keys for logins."""

    def wrong(url: str = "https://x/mcp", **options: Any) -> str:
        with pytest.raises(RemitError) as caught:
            add_mcp(Hub(store=MemoryStore()), "far", allow=["read"], url=url, **options)
        return caught.value.fault.message

    login: dict[str, Any] = {"auth": "oauth", "browser": browser}
    assert "needs `logins`" in wrong(auth="oauth")
    assert "`client_id` needs `issuer`" in wrong(client_id="a", **login)
    assert "`client_secret` needs `client_id`" in wrong(client_secret="a", **login)
    assert "without a login" in wrong(client_key="a", **login)
    assert "https URL with a path" in wrong(client_metadata_url="https://x", **login)
    assert "not both" in wrong(client_metadata_url="https://x/y", client_id="a", issuer="https://y", **login)
    assert "needs an https URL" in wrong("http://far.example/mcp", **login)
    assert "not both" in wrong(token="t", **login)
    assert 'need auth="oauth"' in wrong(browser=browser)
    assert '`redirect_port` needs `auth = "oauth"`' in wrong(redirect_port=80)
    assert "not both" in wrong(issuer="https://y", client_id="a", client_secret="b", client_key="c")


def test_no_value_with_secrets_shows_them() -> None:
    login = StoredLogin(url="https://x", issuer="https://y", access_token="sesame", refresh_token="sesame")
    settings = OauthLogin(issuer="https://y", client_id="a", client_secret="sesame")
    assert "sesame" not in repr((login, settings, Address(url="https://x", oauth=settings)))
