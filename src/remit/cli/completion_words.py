"""Shell completion of agent, profile and device names, and of run, question and draft ids.

A person waits at the keyboard for each: no function here raises, and none imports more than it needs.
"""

import re
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

# A longer list is not readable.
MOST = 50
# The key under which the team file's folder is stored beside its content; no section has a key of this name.
_FOLDER = "folder of the file"


Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
# Characters that a shell takes literally as part of one word. Bash inserts a completion unchanged, and names may come
# from a team file, a peer or a client.
_WORD = re.compile(r"[\w./@][\w./@%+=:,-]*")


def _plain(complete: Completion) -> Completion:
    """Remove characters that a shell interprets, and shorten descriptions to one line."""

    @wraps(complete)
    def completed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = complete(ctx, param, incomplete)
        return [
            CompletionItem(each.value, help=_short(each.help) if each.help else None)
            for each in found
            if isinstance(each.value, str) and _WORD.fullmatch(each.value)
        ]

    return completed


@_plain
def agent_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents and workflows of the team."""
    return _agents(ctx, incomplete)


@_plain
def page_names(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the pages of the documentation."""
    from remit.cli.manual import pages

    return [CompletionItem(name, help=page.title) for name, page in pages().items() if name.startswith(incomplete)]


@_plain
def chat_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the possible first arguments of `remit chat`: the agents, workflows and profiles of the team."""
    profiles = _tables(ctx, "profiles")
    return _agents(ctx, incomplete) + [
        CompletionItem(name, help="a profile, to work with an agent that a device shares")
        for name in profiles
        if name.startswith(incomplete)
    ]


@_plain
def shared_agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents that the team shares; if there are none, all its agents, which can be shared with --device."""
    shared = [CompletionItem(name) for name in _tables(ctx, "shared") if name.startswith(incomplete)]
    return shared or _agents(ctx, incomplete)


@_plain
def granted_agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents that the team shares, which another device may be let to ask."""
    return [CompletionItem(name) for name in _tables(ctx, "shared") if name.startswith(incomplete)]


@_plain
def granted_profiles(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the profiles of the team, which may be let to ask another device."""
    return [CompletionItem(name) for name in _tables(ctx, "profiles") if name.startswith(incomplete)]


@_plain
def recorded_profiles(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the recorded names of connections with other devices: profiles and shared agents."""
    names = dict.fromkeys((*_tables(ctx, "profiles"), *_tables(ctx, "shared")))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@_plain
def device_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the devices and groups that the profile in the previous argument may call."""
    profile, named = ctx.params.get("agent") or next(iter(ctx.args), None), dict[str, None]()
    with suppress(AttributeError, TypeError):  # the values need not be tables yet
        named = dict.fromkeys(_team(ctx).get("profiles", {}).get(profile, {}).get("devices", []))
    for peer in _read_device(ctx, _peers):
        if peer.may_be_asked_by(profile) or (not peer.revoked and named.keys() & peer.names):
            named |= dict.fromkeys(sorted(peer.groups))
        if peer.may_be_asked_by(profile):
            named[peer.card.name] = None
    return [CompletionItem(name) for name in named if name.startswith(incomplete)]


@_plain
def known_devices(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the paired devices that are not revoked."""
    return [
        CompletionItem(peer.card.name, help=peer.device)
        for peer in _read_device(ctx, _peers)
        if not peer.revoked and peer.card.name.startswith(incomplete)
    ]


@_plain
def device_groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the groups of devices."""
    return [each for each in _groups(_read_device(ctx, _peers)) if each.value.startswith(incomplete)]


def devices_and_groups(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the paired devices that are not revoked, and the groups."""
    return [*known_devices(ctx, parameter, incomplete), *device_groups(ctx, parameter, incomplete)]


def _peers(state: Any) -> list[Any]:
    from remit.relay.device.peers import Peers

    return Peers(state).list()


def _groups(known: list[Any]) -> list[CompletionItem]:
    names = sorted({group for peer in known for group in peer.groups})
    return [
        CompletionItem(name, help=_short(", ".join(peer.card.name for peer in known if name in peer.groups)))
        for name in names
    ]


@_plain
def offered_agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents that the paired devices, or the device in the previous argument, share with this one."""
    named = {ctx.params.get("device"), *ctx.args} - {None}

    def query(state: Any) -> list[Any]:
        from remit.relay.device.peers import Peers
        from remit.relay.messages.catalog import latest_offers

        peers = [peer for peer in Peers(state).list() if not peer.revoked]
        meant = [peer for peer in peers if named & peer.names] or peers
        return [offer for peer in meant for offer in latest_offers(state, peer.device) or ()]

    return [
        CompletionItem(offer.name, help=_short(offer.description))
        for offer in _read_device(ctx, query)
        if offer.name.startswith(incomplete)
    ]


@_plain
def shared_run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest runs with shared agents that can be continued."""

    def query(state: Any) -> list[Any]:
        from remit.relay.session.moves import ENDED
        from remit.relay.session.repository import kept_runs

        return [run for run in reversed(kept_runs(state)) if run.state not in ENDED]

    found = [run for run in _read_device(ctx, query) if run.id.startswith(incomplete)]
    return [CompletionItem(run.id, help=f"{run.profile}: {_short(run.objective)}") for run in found[:MOST]]


@_plain
def capability_codes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the capabilities of the team."""
    with suppress(AttributeError, TypeError):  # the values need not be tables yet
        return [
            CompletionItem(code, help=_short(section.get("description", "")))
            for code, section in _team(ctx).get("capabilities", {}).items()
            if code.startswith(incomplete)
        ]
    return []


@_plain
def agents_and_user(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the possible callers: the agents of the team, or the user."""
    user = [CompletionItem("user", help="any external user")] if "user".startswith(incomplete) else []
    return user + _agents(ctx, incomplete)


@_plain
def run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest runs."""
    from remit.stores.reader import runs

    found = _read(ctx, runs(None, incomplete or None, MOST, _now_ms()))
    return [_run_item(each) for each in found]


@_plain
def open_run_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest runs that have not ended."""
    from remit.stores.reader import runs

    found = _read(ctx, runs(None, incomplete or None, MOST, _now_ms()))
    return [_run_item(each) for each in found if each.response is None]


def _run_item(run: Any) -> CompletionItem:
    return CompletionItem(run.run, help=f"{run.agent}: {_short(run.objective)}")


@_plain
def session_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest conversations with the agent in the previous argument."""
    from remit.stores.reader import records, runs

    # While an option has no value yet, click has not assigned the arguments before it.
    agent = ctx.params.get("agent") or next(iter(ctx.args), None)

    def query(connection: Any) -> list[Any]:
        newest = runs(None, None, MOST, _now_ms())(connection)
        return [
            (records(each.run, None, 0, 1)(connection)[0].session, each)
            for each in newest
            if agent in (None, each.agent)
        ]

    found: dict[str, str] = {}
    for session, run in _read(ctx, query):
        if session.startswith(incomplete):
            found.setdefault(session, f"{run.agent}: {_short(run.objective)}")
    return [CompletionItem(session, help=said) for session, said in found.items()]


@_plain
def question_ids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the pending questions, and the drafts to shared agents."""
    from remit.stores.inbox import pending

    def drafts(state: Any) -> list[Any]:
        from remit.relay.session.repository import waiting

        return [run.pending for run in waiting(state)]

    found = [
        *_read(ctx, lambda connection: pending(connection, _now_ms()))[:MOST],
        *_read_device(ctx, drafts)[:MOST],
    ]
    return [CompletionItem(each.id, help=_short(each.text)) for each in found if each.id.startswith(incomplete)]


def _agents(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    with suppress(AttributeError, TypeError):  # the values need not be tables yet
        team = _team(ctx)
        agents: dict[str, dict[str, Any]] = {**team.get("agents", {}), **team.get("workflows", {})}
        return [
            CompletionItem(name, help=_short(section.get("description", "")))
            for name, section in agents.items()
            if name.startswith(incomplete)
        ]
    return []


def _read(ctx: click.Context, query: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the rows of a query on the store; none if there is no store or it cannot be read at once."""
    with suppress(Exception):  # no store yet, a locked one, or one of another version: there is nothing to complete
        from remit.stores.user_keys import connect_plain

        connection = connect_plain(_store(ctx), 0)
        try:
            return query(connection)
        finally:
            connection.close()
    return []


def _read_device(ctx: click.Context, query: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the rows of a query on the file of the team's device; none if it needs a passphrase."""
    with suppress(Exception):  # as above
        from remit.relay.device.key_file import DEVICE_FILE, KEY_FILE, open_keys
        from remit.relay.device.state import DeviceFile

        path = _store(ctx).with_name(DEVICE_FILE)
        # Both would be created if they were missing.
        if path.exists() and path.with_name(KEY_FILE).exists():
            state = DeviceFile.open(path, open_keys(path.with_name(KEY_FILE), ""))
            try:
                return query(state)
            finally:
                state.close()
    return []


def _store(ctx: click.Context) -> Path:
    from remit.stores import STORE_PATH

    team = _team(ctx)
    path: Path = team.get(_FOLDER, Path()) / team.get("store", {}).get("path", STORE_PATH)
    return ctx.params.get("store_path") or path


def _tables(ctx: click.Context, section: str) -> dict[str, Any]:
    """Return the tables in a section of the team file; none if it has none."""
    with suppress(AttributeError, TypeError, ValueError):  # the values need not be tables yet
        return dict(_team(ctx).get(section, {}))
    return {}


def _team(ctx: click.Context) -> dict[str, Any]:
    """Return the content of the team file, without validation."""
    from remit.config.team_search import find_team

    with suppress(Exception):  # an unfinished team file may be invalid
        file = find_team(ctx.params.get("team_file"))
        if file is not None:
            return {**tomllib.loads(Path(file).read_text(encoding="utf-8")), _FOLDER: Path(file).parent}
    return {}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _short(text: object) -> str:
    from remit.words.terminal import one_line

    return one_line(str(text), 60)
