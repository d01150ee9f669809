"""Peers and clients of a team file: what is wrong with them is said by line, and what is right lets them in."""

import json
import re
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from joserfc import jwt as jose
from joserfc.jwk import ECKey, KeySet

from doc_pages import page_text
from remit import Code, RemitError
from remit.installed import install_command
from remit.policy.reception import Sender
from remit.ports import OutgoingRequest
from remit.protocol.envelope import VERSION, Request
from remit.protocol.remit import Remit
from remit.protocol.submission import Submission
from remit_cli.config.load import load_team
from remit_cli.config.peers import addressee_of, authenticator_of, credential_headers_of, unservable
from remit_cli.config.team import Team, team_schema
from remit_server.transports.credentials.incoming import Authenticator, RunCredentials, Spending
from remit_server.transports.credentials.keys import HubKey

TOKEN = "a-token-that-is-long-enough"
OTHER = "another-token-of-that-length"
NOW_MS = 1_763_000_000_000
KEYS = [HubKey.create(NOW_MS).signing(NOW_MS).public for _ in range(2)]

AGENTS = """
[agents.prime]
run = "office:prime"
may_call = ["tag-ai"]
[agents.tag-ai]
run = "office:tag"
"""


def load(folder: Path, text: str, environ: Mapping[str, str] | None = None, *, secrets: bool = True) -> Team:
    file = folder / "remit.toml"
    file.write_text(dedent(text) + AGENTS, encoding="utf-8")
    return load_team(file, environ=environ or {}, secrets=secrets)


def wrong_in(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    with pytest.raises(RemitError) as raised:
        load(folder, text, environ)
    assert raised.value.fault.code is Code.TEAM_INVALID
    return [(each.path, each.message) for each in raised.value.fault.problems]


def make_key(folder: Path) -> HubKey:
    (folder / ".remit").mkdir(exist_ok=True)
    key = HubKey.create(NOW_MS)
    key.save(folder / ".remit" / "hub.key")
    return key


def a_door(team: Team, environ: Mapping[str, str] | None = None, fetched: bytes = b"") -> Authenticator:
    async def fetch(url: str) -> bytes:
        assert url == "https://id.example.org/jwks"
        return fetched

    def wall_ms() -> int:
        return NOW_MS

    return authenticator_of(
        team,
        held=RunCredentials(wall_ms),
        spending=Spending(wall_ms=wall_ms),
        wall_ms=wall_ms,
        fetch=fetch,
        environ=environ or {},
    )


# ── what is wrong ─────────────────────────────────────────────────────────────────────────────────────────────────────


def a_certificate(folder: Path, name: str, password: bytes | None = None) -> None:
    """Write a certificate of our own, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    begins, ends = datetime(2026, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
    made = x509.CertificateBuilder(who, who, key.public_key(), 1, begins, ends).sign(key, hashes.SHA256())
    sealed = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / f"{name}.pem").write_bytes(made.public_bytes(pem))
    (folder / f"{name}.key").write_bytes(key.private_bytes(pem, form, sealed))


@pytest.mark.parametrize(
    ("certificate", "key", "wrong"),
    [
        ("one.pem", "one.key", []),
        ("one.pem", "none.key", [("private_key", "{0}/none.key cannot be read: No such file or directory")]),
        ("one.pem", "two.key", [("private_key", "{0}/two.key is not the key of {0}/one.pem")]),
        (
            "one.key",
            "one.pem",
            [("certificate", "{0}/one.key and {0}/one.pem are not a certificate and its key in PEM format")],
        ),
        (
            "shut.pem",
            "shut.key",
            [
                (
                    "private_key",
                    "{0}/shut.key is encrypted with a password, which a server cannot enter: remove the password",
                )
            ],
        ),
    ],
)
def test_what_keeps_a_server_from_proving_itself_is_named(
    folder: Path, certificate: str, key: str, wrong: list[tuple[str, str]]
) -> None:
    for name in ("one", "two"):
        a_certificate(folder, name)
    a_certificate(folder, "shut", b"sesame")
    team = load(folder, f'[serve]\ncertificate = "{certificate}"\nprivate_key = "{key}"\n')
    expected = [(("serve", name), message.format(folder)) for name, message in wrong]
    assert list(unservable(team)) == expected


def test_a_key_that_is_named_must_be_there_for_whoever_runs_the_team_and_for_nobody_else(folder: Path) -> None:
    text = '[identity]\nkey = "mine.key"\n'
    missing = f"{folder}/mine.key: no hub key found. Make one with `remit keys init`."
    assert wrong_in(folder, text) == [("remit.toml:2 identity.key", missing)]
    assert load(folder, text, secrets=False).identity.key == "mine.key"
    HubKey.create(NOW_MS).save(folder / "mine.key")
    assert load(folder, text)
    (folder / "mine.key").chmod(0o644)
    assert "can be read by other users" in wrong_in(folder, text)[0][1]


def test_files_beside_it_that_are_damaged_are_named(folder: Path) -> None:
    make_key(folder)
    (folder / ".remit" / "trusted.keys").write_text("acme\n", encoding="ascii")
    wrong = wrong_in(folder, "[identity]\n")
    assert wrong == [
        (
            "remit.toml:1 identity",
            f"{folder}/.remit/trusted.keys: line 1 is not a peer name followed by a key",
        )
    ]
    (folder / ".remit" / "trusted.keys").unlink()
    (folder / ".remit" / "revoked").write_text("acme\n", encoding="ascii")
    assert "revoked: line 1 is not a credential id of 128 hexadecimal digits" in wrong_in(folder, "[identity]\n")[0][1]


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "cannot be read"), ("{}", "no list `keys`"), ("<", "Expecting value")]
)
def test_a_file_of_keys_that_holds_none_is_named(folder: Path, content: str | None, reason: str) -> None:
    if content is not None:
        (folder / "keys.json").write_text(content, encoding="ascii")
    text = '[clients.a]\nissuer = "x"\naudience = "y"\njwks = "keys.json"\nagents = ["*"]\n'
    ((place, message),) = wrong_in(folder, text)
    assert place == "remit.toml:4 clients.a.jwks"
    assert reason in message


def test_what_needs_the_extra_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_key(folder)
    text = f"""\
        [peers.acme]
        keys = ["{KEYS[0]}"]
        [clients.a]
        issuer = "x"
        audience = "y"
        jwks = "https://id.example.org/jwks"
        agents = ["*"]
    """
    assert load(folder, text)

    def nothing(_: str) -> bool:
        return False

    monkeypatch.setattr("remit_cli.config.peers._installed", nothing)
    assert wrong_in(folder, text) == [
        ("remit.toml:1 peers.acme", f"credentials between hubs need biscuit-python: {install_command('credentials')}"),
        (
            "remit.toml:4 clients.a.issuer",
            f"tokens of identity providers need joserfc: {install_command('credentials')}",
        ),
    ]
    assert load(folder, '[peers.acme]\ntoken = "$ACME"\n', {"ACME": TOKEN})


def test_a_variable_overrides_what_is_said_of_a_peer(folder: Path) -> None:
    environ = {"ACME": TOKEN, "REMIT_PEERS__ACME__URL": "https://acme.example.org"}
    assert load(folder, '[peers.acme]\ntoken = "$ACME"\n', environ).peers["acme"].url == "https://acme.example.org"


def test_editors_know_what_may_stand_there() -> None:
    definitions = team_schema()["$defs"]
    assert definitions["ClientSection"]["required"] == ["agents"]
    assert definitions["PeerSection"]["properties"]["keys"]["items"]["pattern"] == "^ed25519/[0-9a-fA-F]{64}$"


# ── what is right ─────────────────────────────────────────────────────────────────────────────────────────────────────

SIGNING = ECKey.generate_key("P-256", {"kid": "one"})


SENDING = OutgoingRequest("POST", "/v1/delegations")


def a_jwks() -> bytes:
    return json.dumps(KeySet([SIGNING]).as_dict(private=False)).encode()


async def test_clients_come_in_as_the_file_says(folder: Path) -> None:
    text = """\
        [clients.script]
        token = "$SCRIPT"
        users = ["ann", "bob"]
        agents = ["prime"]
        [clients.portal]
        issuer = "https://id.example.org"
        audience = "remit"
        jwks = "https://id.example.org/jwks"
        user_claim = "email"
        agents = ["*"]
        [peers.acme]
        token = "$ACME"
        agents = ["tag-ai"]
    """
    environ = {"SCRIPT": TOKEN, "ACME": OTHER}
    door = a_door(load(folder, text, environ), environ, a_jwks())
    assert await door.sender({"authorization": f"Bearer {TOKEN}"}) == Sender(
        name="script", users=frozenset({"ann", "bob"}), targets=frozenset({"prime"})
    )
    assert await door.sender({"authorization": f"Bearer {OTHER}"}) == Sender(
        name="acme", is_hub=True, targets=frozenset({"tag-ai"})
    )
    claims: dict[str, Any] = {"iss": "https://id.example.org", "aud": "remit", "exp": NOW_MS // 1_000 + 60}
    token = jose.encode({"alg": "ES256", "kid": "one"}, {**claims, "email": "ann@example.org"}, SIGNING)
    assert await door.sender({"authorization": f"Bearer {token}"}) == Sender(
        name="portal", users=frozenset({"ann@example.org"})
    )


def test_the_examples_in_the_documentation_are_right(folder: Path) -> None:
    page = page_text("credentials")
    (clients,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    team = load(folder, clients + '[agents.tax]\nrun = "office:tag"\n', {"NIGHTLY_TOKEN": TOKEN})
    assert list(team.clients) == ["nightly", "portal"]


async def test_keys_of_a_provider_may_lie_beside_the_file(folder: Path) -> None:
    (folder / "keys.json").write_bytes(a_jwks())
    text = '[clients.a]\nissuer = "x"\naudience = "y"\njwks = "keys.json"\nusers = ["*"]\nagents = ["*"]\n'
    door = a_door(load(folder, text))
    claims: dict[str, Any] = {"iss": "x", "aud": "y", "sub": "ann", "exp": NOW_MS // 1_000 + 60}
    token = jose.encode({"alg": "ES256"}, claims, SIGNING)
    assert await door.sender({"authorization": f"Bearer {token}"}) == Sender(name="a", users=frozenset({"ann"}))


async def test_two_hubs_that_were_told_of_each_other_know_each_other(tmp_path: Path, folder: Path) -> None:
    here, there = folder, tmp_path / "there"
    there.mkdir()
    mine, theirs = (make_key(place).signing(NOW_MS).public for place in (here, there))
    (here / ".remit" / "trusted.keys").write_text(f"acme {theirs}\n", encoding="ascii")
    ours = load(here, 'name = "office"\n[peers.acme]\nurl = "https://acme.example.org"\n')
    file = there / "remit.toml"
    file.write_text(f'name = "acme"\n[peers.office]\nkeys = ["{mine.upper().lower()}"]\nagents = ["*"]\n', "utf-8")
    door = a_door(load_team(file, environ={}))

    def wall_ms() -> int:
        return NOW_MS

    papers = credential_headers_of(ours, held=RunCredentials(wall_ms), wall_ms=wall_ms)
    remit = Remit(user="ann", depth=1, max_depth=5, time_ms=60_000, tokens=8_000, chain=("prime@office",))
    request = Request(version=VERSION, id="r-1", origin="prime", target="tax", run="run-1", remit=remit)
    sent = await papers.credential(addressee_of(ours, "acme", {}))(request, SENDING)
    headers = {name.lower(): value for name, value in sent.items()}
    sender = await door.sender(headers, *SENDING[:2])
    assert sender == Sender(name="office", is_hub=True)
    grant = await door.grant(headers, sender, Submission(id="r-1", target="tax", remit=remit))
    assert grant is not None
    assert (grant.user, grant.depth, grant.chain) == ("ann", 1, ("prime@office",))


async def test_a_change_of_the_files_counts_at_once(folder: Path) -> None:
    key = make_key(folder)
    team = load(folder, '[peers.acme]\ntoken = "$ACME"\n[identity]\n', {"ACME": TOKEN})
    door = a_door(team, {"ACME": TOKEN})
    other = HubKey.create(NOW_MS)

    def wall_ms() -> int:
        return NOW_MS

    from remit_server.transports.credentials.outgoing import Addressee, CredentialHeaders

    papers = CredentialHeaders(key=lambda: other, wall_ms=wall_ms)
    remit = Remit(user="ann", depth=0, max_depth=5, time_ms=60_000, tokens=8_000)
    request = Request(version=VERSION, id="r-1", origin="user", target="tax", run="run-1", remit=remit)

    async def come(to: str) -> Sender:
        sent = await papers.headers(Addressee(name="here", keys=(to,)), request, SENDING)
        return await door.sender({name.lower(): value for name, value in sent.items()}, *SENDING[:2])

    mine = key.signing(NOW_MS).public
    with pytest.raises(RemitError, match="does not belong to any peer"):
        await come(mine)
    trusted = folder / ".remit" / "trusted.keys"
    trusted.write_text(f"acme {other.signing(NOW_MS).public}\n", encoding="ascii")
    assert (await come(mine)).name == "acme"
    newer = key.rotated(NOW_MS, 0)
    newer.save(folder / ".remit" / "hub.key", replace=True)
    assert stat.S_IMODE((folder / ".remit" / "hub.key").stat().st_mode) == 0o600
    with pytest.raises(RemitError, match="for another hub"):
        await come(mine)
    assert (await come(newer.signing(NOW_MS).public)).name == "acme"


async def test_a_team_without_a_key_knows_its_peers_by_token(folder: Path) -> None:
    text = '[peers.acme]\nurl = "https://acme.example.org"\ntoken = "$ACME"\n'
    team = load(folder, text, {"ACME": TOKEN})

    def wall_ms() -> int:
        return NOW_MS

    remit = Remit(user="ann", depth=0, max_depth=5, time_ms=60_000, tokens=8_000)
    request = Request(version=VERSION, id="r-1", origin="user", target="tax", run="run-1", remit=remit)
    papers = credential_headers_of(team, held=RunCredentials(wall_ms), wall_ms=wall_ms)
    headers = await papers.headers(addressee_of(team, "acme", {"ACME": TOKEN}), request, SENDING)
    assert headers == {"Authorization": f"Bearer {TOKEN}"}
    with pytest.raises(RemitError, match="ACME is not set"):
        addressee_of(team, "acme", {})
