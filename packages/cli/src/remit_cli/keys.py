"""`remit keys`: the keys of this hub and of its peers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from remit_cli.config.team_search import make_private
from remit_cli.options import SubcommandGroup, json_option, team_options
from remit_cli.show.screen import clock_time, now_ms, print_json, print_table
from remit_server.documents.common import shown_as

if TYPE_CHECKING:  # signing is not loaded to show help
    from remit_cli.config.team import Team
    from remit_server.documents.team import KeysShown
    from remit_server.transports.credentials.keys import HubKey

OVERLAP = "168h"


class UnfitError(click.ClickException):
    """The key files do not allow the command."""

    exit_code = 2


class KeyFiles(NamedTuple):
    """The key files, and the peers of the team."""

    key: Path
    trusted: Path
    revoked: Path
    team: Team | None


@click.group(cls=SubcommandGroup)
def keys() -> None:
    """Manage the keys of this hub and of its peers.

    A hub proves its identity to other hubs with its key. See `remit docs credential-checks` for what that prevents.

    \b
    Example:
      remit keys init
      remit keys trust acme ed25519/d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a
    """


@keys.command()
@team_options
@json_option
def init(team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Create this hub's key, in a file that only its owner can read.

    The file is `key` in `[identity]` of the team file, or .remit/hub.key. An existing key is not changed.

    \b
    Example:
      remit keys init
    """
    from remit_server.transports.credentials.keys import HubKey

    files = _files(team_file, overrides)
    try:
        make_private(files.key.parent)
        HubKey.create(now_ms()).save(files.key)
    except FileExistsError as error:
        raise UnfitError(
            f"{files.key} already exists.\n→ Show it with `remit keys show`, or replace it with `remit keys rotate`."
        ) from error
    except OSError as error:
        raise _unwritable(files.key, error) from error
    if _print_keys(files, as_json):
        click.echo(
            "→ Send peers the line above over a channel that you trust. The key file stays on this machine.", err=True
        )
        click.echo(f"→ Each peer runs: {_invitation(files)}", err=True)


@keys.command()
@team_options
@json_option
def show(team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show this hub's public keys, and the keys of its peers.

    Peers enter the key of the first column. The fingerprint is for two people to compare.

    \b
    Example:
      remit keys show
      remit keys show --json
    """
    files = _files(team_file, overrides)
    if _print_keys(files, as_json) and not files.key.exists():
        click.echo(f"No key in {files.key}.\n→ Create one with `remit keys init`.", err=True)


@keys.command()
@click.option(
    "--overlap",
    default=OVERLAP,
    show_default=True,
    metavar="TIME",
    help="How long the old key stays valid: 30m, 168h; 0s if it was stolen.",
)
@team_options
@json_option
def rotate(overlap: str, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Replace this hub's key with a new one, without an interruption.

    In the first half of the overlap the old key still signs; send peers the new key in that time. In the second half
    the new key signs. Both keys are accepted until the overlap ends. Running hubs apply the change at once.

    \b
    Example:
      remit keys rotate
      remit keys rotate --overlap 0s
    """

    overlap_ms = _duration(overlap)
    files = _files(team_file, overrides)
    key = _loaded(files)
    try:
        key.rotated(now_ms(), overlap_ms).save(files.key, replace=True)
    except OSError as error:
        raise _unwritable(files.key, error) from error
    if _print_keys(files, as_json):
        click.echo(f"→ Ask peers to trust the newest key: {_invitation(files)}", err=True)


@keys.command()
@click.argument("name")
@click.argument("key", required=False)
@click.option("--remove", is_flag=True, help="Stop trusting KEY; without KEY, all keys that were added for NAME.")
@team_options
@json_option
def trust(
    name: str, key: str | None, remove: bool, team_file: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Trust KEY as a key of the peer NAME, the name that the other hub gives itself.

    Compare the fingerprint with its owner first. The key takes effect when the team file has `[peers.NAME]`, which sets
    what that peer may ask for. That section can also contain keys. Running hubs apply the change at once.

    \b
    Example:
      remit keys trust acme ed25519/d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a
      remit keys trust acme --remove
    """
    from remit.runtime.registry import NAME
    from remit_server.transports.credentials.keys import public_of

    if NAME.fullmatch(name) is None:
        raise click.BadParameter("use only letters, digits, `-`, `_` and `.`", param_hint="NAME")
    if key is None and not remove:
        raise click.MissingParameter(param_hint="KEY", param_type="argument")
    try:
        public = None if key is None else public_of(key)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="KEY") from error
    files = _files(team_file, overrides)
    _refuse_own(files, public)
    lines = _lines(files.trusted)
    if remove:
        kept = [line for line in lines if not _is_about(line, name, public)]
        if len(kept) == len(lines):
            what = "no key" if public is None else "no such key"
            raise UnfitError(
                f"{files.trusted} has {what} of {name}.\n→ Show all keys, those of the team file included: "
                "remit keys show"
            )
    else:
        kept = [*(line for line in lines if not _is_about(line, name, public)), f"{name} {public}"]
    _write(files.trusted, kept, trusted=True)
    if not _print_keys(files, as_json):
        return
    is_peer = files.team is not None and name in files.team.peers
    if not remove and not is_peer:
        click.echo(f"→ It takes effect when the team file has [peers.{name}].", err=True)
    elif remove and is_peer:
        click.echo(f"→ {_still_known(files, name, kept)}", err=True)


@keys.command()
@click.argument("credential")
@team_options
@json_option
def revoke(credential: str, team_file: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Revoke a credential and everything derived from it: by its id, or as received in the header.

    The log of the receiving hub has the id. Running hubs apply the change at once.

    \b
    Example:
      remit keys revoke 4f0c…9a
    """
    from remit_server.transports.credentials.trusted_files import REVOCATION

    revoked = credential.strip().lower()
    if REVOCATION.fullmatch(revoked) is None:
        try:
            from remit_server.transports.credentials.chain import ids_of

            revoked = ids_of(credential.strip())[-1]
        except (ImportError, ValueError) as error:
            why = "expected an id of 128 hexadecimal digits, or a complete credential"
            raise click.BadParameter(why, param_hint="CREDENTIAL") from error
    files = _files(team_file, overrides)
    lines = _lines(files.revoked)
    if not any(line.partition("#")[0].strip().lower() == revoked for line in lines):
        _write(files.revoked, [*lines, revoked], trusted=False)
    if _print_keys(files, as_json):
        click.echo(f"Revoked: {revoked}", err=True)


def _invitation(files: KeyFiles) -> str:
    """Return the command by which a peer trusts this hub's newest key."""
    return f"remit keys trust {files.team.name if files.team else 'NAME'} {_loaded(files).stages[-1].pair.public}"


def _still_known(files: KeyFiles, name: str, lines: list[str]) -> str:
    """Return how a peer is still trusted after one of its keys was removed."""
    assert files.team is not None, "there are no peers without a team"
    peer = files.team.peers[name]
    if peer.keys or any(_is_about(line, name, None) for line in lines):
        return f"{name} is still trusted, by the keys above."
    if peer.token is not None:
        return f"{name} is still trusted, by its `token` in the team file."
    return (
        f"{name} has no key left and is no longer let in. Remove [peers.{name}] from the team file, too: hubs do "
        "not start with a peer that cannot prove its identity."
    )


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _files(team_file: Path | None, overrides: tuple[str, ...]) -> KeyFiles:
    from remit_cli.config.load import load_team
    from remit_cli.config.sections.hub import IdentitySection
    from remit_cli.config.team_search import find_team

    file = find_team(team_file)
    team = None if file is None else load_team(file, overrides=overrides, secrets=False, code=False)
    folder, identity = (Path(), IdentitySection()) if team is None else (team.folder, team.identity)
    return KeyFiles(
        key=_shorter(folder / identity.key),
        trusted=_shorter(folder / identity.trusted),
        revoked=_shorter(folder / identity.revoked),
        team=team,
    )


def _shorter(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _loaded(files: KeyFiles) -> HubKey:
    from remit_server.transports.credentials.keys import HubKey

    return HubKey.load(files.key)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UnfitError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not a text file'}") from error


def _is_about(line: str, name: str, public: str | None) -> bool:
    words = line.partition("#")[0].split()
    return words[:1] == [name] and (public is None or [word.lower() for word in words[1:]] == [public])


def _refuse_own(files: KeyFiles, public: str | None) -> None:
    if files.key.exists() and any(stage.pair.public == public for stage in _loaded(files).stages):
        raise click.BadParameter("this is the key of this hub", param_hint="KEY")


def _write(path: Path, lines: list[str], *, trusted: bool) -> None:
    from remit_server.transports.credentials.keys import write_private
    from remit_server.transports.credentials.trusted_files import revoked_ids, trusted_keys

    content = "".join(f"{line}\n" for line in lines).encode()
    try:
        _ = trusted_keys(content) if trusted else revoked_ids(content)
    except ValueError as error:
        raise UnfitError(f"{path} would become invalid: {error}\n→ Nothing was changed.") from error
    try:
        make_private(path.parent)
        write_private(path, content, replace=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UnfitError:
    return UnfitError(
        f"cannot write {path}: {error.strerror}\n→ Make it writable for this user, or choose another file."
    )


def _duration(text: str) -> int:
    from msgspec import ValidationError, convert

    from remit_cli.config.values import Duration, duration_ms

    try:
        return duration_ms(convert(text, Duration))
    except ValidationError as error:
        raise click.BadParameter("expected a duration, such as 30m or 168h", param_hint="--overlap") from error


# ── showing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _print_keys(files: KeyFiles, as_json: bool) -> bool:
    """Print the current keys; return whether they were printed as text."""

    now = _now(files)
    if as_json:
        print_json(now)
        return False
    rows: list[tuple[str, str, str, str]] = []
    for each in now.keys:
        until = "" if each.accepted_until_ms is None else f", until {clock_time(each.accepted_until_ms)}"
        since = f" from {clock_time(each.signs_from_ms)}" if each.state == "next" else ""
        rows.append((each.public, each.fingerprint, "this hub", f"{_STATES[each.state]}{since}{until}"))
    for each in now.peers:
        counts = "" if each.counts else f" (no [peers.{each.peer}] in the team file)"
        rows.append((each.public, each.fingerprint, each.peer, f"{each.file}{counts}"))
    if rows:
        print_table(("key", "fingerprint", "whose", "state"), rows, folds=("fingerprint", "state"))
    if now.revoked:
        click.echo(f"{now.revoked} revoked, in {files.revoked}", err=True)
    return True


_STATES = {"signs": "signs", "next": "signs", "old": "accepted"}


def _now(files: KeyFiles) -> KeysShown:
    from remit_server.documents.team import KeysShown, OwnKey, PeerKey
    from remit_server.transports.credentials.keys import fingerprint
    from remit_server.transports.credentials.trusted_files import WatchedFile, revoked_ids, trusted_keys

    at_ms = now_ms()
    own: list[OwnKey] = []
    if files.key.exists():
        key = _loaded(files)
        signing = key.signing(at_ms)
        for stage in key.accepted(at_ms):
            state = "signs" if stage.pair is signing else "next" if stage.signs_from_ms > at_ms else "old"
            own.append(
                shown_as(
                    OwnKey, stage, public=stage.pair.public, fingerprint=fingerprint(stage.pair.public), state=state
                )
            )
    peers = {} if files.team is None else files.team.peers
    named = [(name, key.lower(), "team file") for name, peer in peers.items() for key in peer.keys]
    trusted = WatchedFile(files.trusted, trusted_keys, missing={}).value
    named += [(name, key, str(files.trusted)) for name, known in trusted.items() for key in known]
    return KeysShown(
        file=str(files.key),
        keys=tuple(own),
        peers=tuple(
            PeerKey(peer=name, public=key, fingerprint=fingerprint(key), file=file, counts=name in peers)
            for name, key, file in named
        ),
        revoked=len(WatchedFile(files.revoked, revoked_ids, missing=frozenset[str]()).value),
    )
