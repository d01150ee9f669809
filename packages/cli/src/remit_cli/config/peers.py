"""Checks the peers and clients of a team file, and authenticates them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from remit.installed import install_command
from remit.policy.reception import Permission
from remit.protocol.errors import RemitError, in_sentences
from remit.protocol.problems import WrongPart
from remit.runtime.registry import team_invalid
from remit_cli.config.checks import known_secret, secret_of, unknown
from remit_cli.config.sections.hub import ClientSection
from remit_cli.config.team import Names, Team, TeamFile, sections

if TYPE_CHECKING:  # most commands authenticate nobody
    from remit_server.transports.credentials.incoming import (
        Authenticator,
        Count,
        KnownSender,
        RunCredentials,
        Spending,
        UserTokens,
    )
    from remit_server.transports.credentials.jwt import Fetch
    from remit_server.transports.credentials.keys import HubKey
    from remit_server.transports.credentials.outgoing import Addressee, CredentialHeaders

ANYONE = "*"
_OF_PROVIDERS = ("audience", "jwks", "algorithms", "user_claim")
_CONSOLE_HOST = re.compile(r"(https?://)?([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.IGNORECASE)
_LOCAL = ("localhost", "127.0.0.1", "::1")


# ── within the file ───────────────────────────────────────────────────────────────────────────────────────────────────


def mistaken(values: dict[str, Any], team: TeamFile, names: Names) -> Iterator[WrongPart]:
    """Return peers and clients that are ambiguous, or do not have exactly one kind of credential."""
    exposed = (*names["agents"], *names["workflows"])
    if team.orchestrator is not None:
        exposed = (*exposed, team.orchestrator.name)
    yield from unknown(("serve", "agents"), "agent", team.serve.agents - {ANYONE}, exposed)
    yield from unknown(("serve", "mcp_tools"), "agent", team.serve.mcp_tools - {ANYONE}, exposed)
    if ANYONE not in team.serve.agents:
        for each in sorted((team.serve.mcp_tools - {ANYONE} - team.serve.agents) & frozenset(exposed)):
            yield WrongPart(("serve", "mcp_tools", each), f"`{each}` is not among the `agents` of `[serve]`")
    for name, agent in team.agents.items():
        if agent.peer is None:
            continue
        place = ("agents", name, "peer")
        for wrong in unknown(place, "peer", (agent.peer,), values.get("peers", {})):
            yield WrongPart(place, wrong.message)
        # An invalid URL is present, and reported elsewhere.
        if agent.peer in team.peers and "url" not in values["peers"][agent.peer]:
            yield WrongPart(place, f"`[peers.{agent.peer}]` has no `url`, so it cannot be called")
    for each in team.serve.proxies:
        try:
            ip_network(each, strict=False)
        except ValueError:
            yield WrongPart(
                ("serve", "proxies", each), f"`{each}` is neither an IP address nor a network like 10.0.0.0/8"
            )
    for each in team.serve.console_hosts:
        if not _CONSOLE_HOST.fullmatch(each):
            how = "write `host`, `host:port`, or `http://host` for a name without encryption"
            yield WrongPart(("serve", "console_hosts", each), f"`{each}` is not a host name; {how}")
    if (team.serve.certificate is None) != (team.serve.private_key is None):
        yield WrongPart(("serve",), "`certificate` and `private_key` go together: give both, or none")
    owners: dict[str, str] = {}
    for name, peer in team.peers.items():
        place = ("peers", name)
        if name == team.name:
            yield WrongPart(place, f"`{name}` is this hub itself; use the peer's own name, the `name` in its team file")
        yield from unknown((*place, "agents"), "agent", peer.agents - {ANYONE}, exposed)
        if peer.url is not None:
            from remit_server.transports.addresses import no_hub

            if (why := no_hub(peer.url)) is not None:
                yield WrongPart((*place, "url"), why)
        for key in peer.keys:
            owner = owners.setdefault(key.lower(), name)
            if owner != name:
                yield WrongPart((*place, "keys", key), f"`{owner}` already has this key")
    for name, client in team.clients.items():
        place, keys = ("clients", name), values["clients"][name]
        if name in values.get("peers", {}):
            yield WrongPart(place, f"there is a peer `{name}`; give the client another name")
        yield from unknown((*place, "agents"), "agent", client.agents - {ANYONE}, exposed)
        yield from _undecided(place, keys, client)


def _undecided(place: tuple[str, ...], keys: Collection[str], client: ClientSection) -> Iterator[WrongPart]:
    if "token" not in keys and "issuer" not in keys:
        yield WrongPart(place, 'a client needs `token`, as "$NAME", or `issuer`, whose tokens its users bring')
    elif "token" in keys and "issuer" in keys:
        yield WrongPart((*place, "issuer"), "a client has `token` or `issuer`, not both; describe it as two clients")
    elif "token" in keys:
        for key in _OF_PROVIDERS:
            if key in keys:
                yield WrongPart((*place, key), f"`{key}` is for a client that has an `issuer`")
        if client.users is None and "users" not in keys:
            yield WrongPart(place, 'say for which `users` its token may ask: names, or ["*"] for anyone')
    else:
        for key in ("audience", "jwks"):
            if key not in keys:
                yield WrongPart((*place, key), f"a client with an `issuer` needs `{key}`, too")
        if client.jwks is not None and not _is_safe(client.jwks):
            yield WrongPart((*place, "jwks"), "keys must be fetched over https, or anyone could replace them")


def _is_safe(source: str) -> bool:
    """Return whether the content of a URL or file is authentic: fetched over https, or local."""
    parts = urlsplit(source)
    return "://" not in source or parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)


# ── outside the file ──────────────────────────────────────────────────────────────────────────────────────────────────


def unprovable(values: dict[str, Any], team: TeamFile, folder: Path, environ: Mapping[str, str]) -> Iterator[WrongPart]:
    """Return peers and clients that cannot be authenticated: credentials are missing, invalid or shared."""
    if not (team.peers or team.clients or "identity" in values):
        return
    yield from _unfit_tokens(team, environ)
    trusted: Mapping[str, tuple[str, ...]] = {}
    try:
        trusted = _trusted(folder / team.identity.trusted)()
        _ = _revoked(folder / team.identity.revoked)()
    except RemitError as error:
        yield WrongPart(("identity",), error.fault.message)
    keyed = [name for name, peer in team.peers.items() if peer.keys or name in trusted]
    for name in team.peers:
        # An invalid credential, which is reported elsewhere, also counts as one.
        if name not in keyed and not (values["peers"][name].get("keys") or "token" in values["peers"][name]):
            how = f"give it `keys` or a `token`, or trust a key of it: remit keys trust {name} KEY"
            yield WrongPart(("peers", name), f"it has no credentials; {how}")
    if "identity" in values or keyed:
        place = ("identity", "key") if "identity" in values else ("peers", keyed[0])
        yield from unusable_key(place, folder / team.identity.key)
    install = install_command("credentials")
    if keyed and not _installed("biscuit_auth"):
        yield WrongPart(("peers", keyed[0]), f"credentials between hubs need biscuit-python: {install}")
    for name, client in team.clients.items():
        place = ("clients", name)
        if client.issuer is not None and not _installed("joserfc"):
            yield WrongPart((*place, "issuer"), f"tokens of identity providers need joserfc: {install}")
        elif client.jwks is not None and "://" not in client.jwks:
            yield from _unreadable_keys((*place, "jwks"), folder / client.jwks)


def _unfit_tokens(team: TeamFile, environ: Mapping[str, str]) -> Iterator[WrongPart]:
    from remit_server.transports.credentials.incoming import unfit

    owners: dict[str, str] = {}
    sections = [("peers", name, peer.token) for name, peer in team.peers.items()]
    sections += [("clients", name, client.token) for name, client in team.clients.items()]
    for section, name, reference in sections:
        try:
            token = None if reference is None else secret_of(reference, environ)
        except ValueError:
            continue  # missing variables are reported for all secrets together
        if token is None:
            continue
        owner = owners.setdefault(token, name)
        if owner != name:
            yield WrongPart((section, name, "token"), f"`{owner}` has the same token, so senders cannot be told apart")
        elif (why := unfit(token)) is not None:
            yield WrongPart((section, name, "token"), f"{(reference or '').removeprefix('$')} is no token: {why}")


def unusable_key(place: tuple[str, ...], path: Path) -> Iterator[WrongPart]:
    """Return why the key file of this hub cannot be used."""
    from remit_server.transports.credentials.keys import HubKey

    try:
        HubKey.load(path)
    except RemitError as error:
        yield WrongPart(place, in_sentences(error.fault.message, error.fault.suggestion))


def _unreadable_keys(place: tuple[str, ...], path: Path) -> Iterator[WrongPart]:
    from remit_server.transports.credentials.jwt import key_set

    try:
        key_set(path.read_bytes())
    except OSError as error:
        yield WrongPart(place, f"{path} cannot be read: {error.strerror}")
    except ValueError as error:
        yield WrongPart(place, f"{path}: {error}")


def unencrypted(team: TeamFile) -> Iterator[WrongPart]:
    """Return peers, and addresses that secrets go to, that are called without encryption."""
    for name, peer in team.peers.items():
        if is_plain(peer.url):
            why = (
                "plain http: anyone on the network path can read requests and answers, change the answers, and without "
                "keys use the token; use https"
            )
            yield WrongPart(("peers", name, "url"), why)
    for each in sections():
        yield from each.unencrypted(team)


def is_plain(url: str | None) -> bool:
    """Return whether an address is called over a network without encryption."""
    from remit_server.transports.addresses import is_loopback

    parts = urlsplit(url or "")
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def unservable(team: Team) -> Iterator[WrongPart]:
    """Return the reasons why the certificate of `[serve]` cannot be used."""
    section = team.serve
    if section.certificate is None or section.private_key is None:
        return
    from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError

    for name in ("certificate", "private_key"):
        path = team.folder / getattr(section, name)
        try:
            path.read_bytes()
        except OSError as error:
            yield WrongPart(("serve", name), f"{path} cannot be read: {error.strerror}")
            return
    certificate, key = team.folder / section.certificate, team.folder / section.private_key
    wants_password = False

    def password() -> str:  # without it, OpenSSL would ask for a password on the terminal
        nonlocal wants_password
        wants_password = True
        return ""

    try:
        SSLContext(PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password)
    except (SSLError, ValueError) as error:
        if wants_password:
            yield WrongPart(
                ("serve", "private_key"),
                f"{key} is encrypted with a password, which a server cannot enter: remove the password",
            )
        elif getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            yield WrongPart(("serve", "private_key"), f"{key} is not the key of {certificate}")
        else:
            yield WrongPart(
                ("serve", "certificate"), f"{certificate} and {key} are not a certificate and its key in PEM format"
            )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # it was taken out of the running program
        return False


# ── authentication ────────────────────────────────────────────────────────────────────────────────────────────────────


def authenticator_of(
    team: Team,
    *,
    held: RunCredentials,
    spending: Spending,
    count: Count | None = None,
    wall_ms: Callable[[], int],
    fetch: Fetch,
    environ: Mapping[str, str] = os.environ,
    more: Iterable[KnownSender] = (),
) -> Authenticator:
    """Return the authenticator for a team's peers and clients, and *more*; *fetch* gets keys of identity providers."""
    from remit_server.transports.credentials.incoming import Authenticator, KnownSender

    known: list[KnownSender] = [
        *more,
        *(
            KnownSender(
                name=name,
                is_hub=True,
                keys=tuple(key.lower() for key in peer.keys),
                token=known_secret(peer.token, environ),
                permissions=frozenset(map(Permission, peer.permissions)),
                users=_bound(peer.users),
                agents=_bound(peer.agents),
            )
            for name, peer in team.peers.items()
        ),
    ]
    known += [
        KnownSender(
            name=name,
            token=known_secret(client.token, environ),
            issuer=_issuer(client, team.folder, fetch),
            permissions=frozenset(map(Permission, client.permissions)),
            may_approve=client.may_approve,
            users=_bound(client.users),
            agents=_bound(client.agents),
        )
        for name, client in team.clients.items()
    ]
    return Authenticator(
        known,
        key=key_of(team),
        trusted=_trusted(team.folder / team.identity.trusted),
        revoked=_revoked(team.folder / team.identity.revoked),
        held=held,
        spending=spending,
        count=count,
        wall_ms=wall_ms,
    )


def credential_headers_of(team: Team, *, held: RunCredentials, wall_ms: Callable[[], int]) -> CredentialHeaders:
    """Return what makes the credential headers for requests to peers."""
    from remit_server.transports.credentials.outgoing import CredentialHeaders

    trusted = _trusted(team.folder / team.identity.trusted)
    return CredentialHeaders(key=key_of(team), trusted=lambda name: trusted().get(name, ()), held=held, wall_ms=wall_ms)


def addressee_of(team: Team, name: str, environ: Mapping[str, str] = os.environ) -> Addressee:
    """Return a peer of a team for `CredentialHeaders`."""
    from remit_server.transports.credentials.outgoing import Addressee

    peer = team.peers[name]
    keys = tuple(key.lower() for key in peer.keys)
    return Addressee(name=name, keys=keys, token=known_secret(peer.token, environ))


def key_of(team: Team) -> Callable[[], HubKey] | None:
    """Return a function that reads this hub's current key from its file; None if there is none."""
    from remit_server.transports.credentials.keys import HubKey
    from remit_server.transports.credentials.trusted_files import WatchedFile

    path = team.folder / team.identity.key
    if not path.exists():
        return None
    watched = WatchedFile(path, lambda _: HubKey.load(path))
    return lambda: watched.value


def _issuer(client: ClientSection, folder: Path, fetch: Fetch) -> UserTokens | None:
    if client.issuer is None:
        return None
    try:
        from remit_server.transports.credentials.jwt import Issuer, KeysFile, KeysUrl, key_set
    except ImportError as error:
        raise team_invalid(str(error)) from error
    from remit_server.transports.credentials.trusted_files import WatchedFile

    jwks = client.jwks or ""
    return Issuer(
        issuer=client.issuer,
        audience=client.audience or "",
        keys=KeysUrl(jwks, fetch) if "://" in jwks else KeysFile(WatchedFile(folder / jwks, key_set)),
        algorithms=client.algorithms,
        user_claim=client.user_claim,
    )


def _trusted(path: Path) -> Callable[[], Mapping[str, tuple[str, ...]]]:
    from remit_server.transports.credentials.trusted_files import WatchedFile, trusted_keys

    watched = WatchedFile(path, trusted_keys, missing={})
    return lambda: watched.value


def _revoked(path: Path) -> Callable[[], frozenset[str]]:
    from remit_server.transports.credentials.trusted_files import WatchedFile, revoked_ids

    watched = WatchedFile(path, revoked_ids, missing=frozenset[str]())
    return lambda: watched.value


def _bound(named: frozenset[str] | None) -> frozenset[str] | None:
    return None if named is None or ANYONE in named else named
