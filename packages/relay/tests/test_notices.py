"""Notifications: which change of a run needs a person, once each, and the ways in which they are told."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from dbus_fast import Message
from dbus_fast.aio import MessageBus
from msgspec.structs import replace

from remit.protocol.errors import RemitError
from remit_cli.config.load import load_team
from remit_relay.bridge.ports import Choice, PermissionRequest
from remit_relay.notifier import (
    Deliver,
    Notifier,
    SentNotice,
    in_words,
    needs_person,
    notices_of,
    to_desktop,
    to_program,
    to_webhook,
)
from remit_relay.session.moves import SessionState
from remit_relay.session.run import Overlay, PendingDraft
from remit_relay.team.device_service import notifier_of

RUN = Overlay(id="r1", profile="mine", device="d1", session="s1", objective="review this API")
ASKED = replace(RUN, state=SessionState.READY_TO_SEND, pending=PendingDraft(id="r1.p1", text="the secret plan"))
QUESTION = PermissionRequest(
    session_id="s",
    title="Run tests",
    kind="execute",
    details="",
    choices=(Choice(id="1", name="Once", kind="allow_once"),),
)
WORKING = replace(RUN, state=SessionState.WAITING_LOCAL, prompt="r1.p1", questions=(QUESTION,))
FAILED = replace(RUN, state=SessionState.ERROR, failure="it crashed", failures=1)
LIMIT = replace(RUN, state=SessionState.STOPPED, ended="max_turns", banner="The run has ended at its limit of 8 turns")


@pytest.mark.parametrize(
    ("run", "kinds", "waits"),
    [
        (ASKED, ["draft"], True),
        (WORKING, ["permission"], True),
        (FAILED, ["error"], True),
        (LIMIT, ["limit"], False),
        (replace(RUN, state=SessionState.COMPLETED, ended="done", result="all well"), ["done"], False),
        (replace(RUN, state=SessionState.STOPPED, ended="user"), [], False),
        (replace(ASKED, state=SessionState.PAUSED), [], False),
        (replace(RUN, state=SessionState.READY_TO_SEND, sending="r1.m1"), [], False),
        (replace(RUN, state=SessionState.WAITING_REMOTE), [], False),
    ],
)
def test_a_person_is_told_what_needs_them_and_nothing_else(run: Overlay, kinds: list[str], waits: bool) -> None:
    assert [each.kind for each in notices_of(run)] == kinds
    assert needs_person(run) is waits


def test_each_failure_is_an_occasion_of_its_own() -> None:
    (first,), (second,) = notices_of(FAILED), notices_of(replace(FAILED, failures=2, prompts=1))
    assert first.id != second.id


class KeepsNotices:
    """Keeps the notices that are sent."""

    def __init__(self) -> None:
        self.sent_notices: list[SentNotice] = []

    async def __call__(self, sent: SentNotice) -> None:
        self.sent_notices.append(sent)


def notifier(folder: Path, *deliverers: Deliver, texts: bool = False) -> Notifier:
    return Notifier(deliverers, folder / "notified", lambda run: run, texts=texts)


async def test_each_occasion_is_told_once_also_after_a_restart(tmp_path: Path) -> None:
    recorder = KeepsNotices()
    async with notifier(tmp_path, recorder) as one:
        for run in (ASKED, ASKED, replace(ASKED, mode="semi_auto"), replace(FAILED, id="r2")):
            one.changed(run)
    assert [(each.notice.kind, each.waiting) for each in recorder.sent_notices] == [("draft", 1), ("error", 2)]
    async with notifier(tmp_path, recorder) as one:
        one.changed(ASKED)
        one.changed(replace(ASKED, pending=PendingDraft(id="r1.p2", text="another")))
    assert [each.notice.id for each in recorder.sent_notices][2:] == ["r1:draft:r1.p2"]


async def test_the_words_of_the_agents_are_told_only_if_that_is_wanted(tmp_path: Path) -> None:
    without, whole = KeepsNotices(), KeepsNotices()
    async with notifier(tmp_path / "a", without) as one, notifier(tmp_path / "b", whole, texts=True) as other:
        one.changed(ASKED)
        other.changed(ASKED)
    (sent,) = without.sent_notices
    assert (sent.title, in_words(sent), sent.notice.text) == ("A draft needs your review", "mine, turn 1", "")
    (sent,) = whole.sent_notices
    assert in_words(replace(sent, waiting=3)) == "mine, turn 1; 3 runs wait for you\nthe secret plan"


async def test_one_way_that_fails_does_not_keep_the_others_from_telling(tmp_path: Path) -> None:
    async def broken(_: SentNotice) -> None:
        raise ValueError("broken")

    recorder = KeepsNotices()
    async with notifier(tmp_path, broken, recorder) as one:
        one.changed(ASKED)
    assert len(recorder.sent_notices) == 1


def a_notice() -> SentNotice:
    (notice,) = notices_of(LIMIT)
    return SentNotice(title=notice.title, notice=notice, waiting=0)


# ── a program ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_program_reads_the_notice_from_its_stdin(tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    await to_program([sys.executable, "-c", code, "$HOME; made.json"], tmp_path)(a_notice())
    message = json.loads((tmp_path / "$HOME; made.json").read_text(encoding="utf-8"))
    assert message["notice"]["kind"] == "limit"
    assert (message["title"], message["waiting"]) == ("A run has ended at its limit", 0)


@pytest.mark.parametrize(
    ("code", "says"),
    [("raise SystemExit(3)", "exited with code 3"), ("import time; time.sleep(60)", "was ended after")],
)
async def test_a_program_that_fails_or_hangs_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: str, says: str
) -> None:
    if "sleep" in code:
        monkeypatch.setattr("remit_relay.notifier.TIMEOUT_S", 0.2)
    await to_program([sys.executable, "-c", code], tmp_path)(a_notice())
    assert says in caplog.text


async def test_a_program_that_is_not_there_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await to_program(["/no/such/program"], tmp_path)(a_notice())
    assert "cannot be started: No such file or directory" in caplog.text


# ── a webhook ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def server(answers: list[int]) -> AsyncGenerator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """Yield the address of a server that answers with these codes, and what was posted to it."""
    posted: list[tuple[dict[str, str], bytes]] = []

    async def take(request: web.Request) -> web.Response:
        posted.append(({**request.headers}, await request.read()))
        return web.Response(status=answers[min(len(posted), len(answers)) - 1])

    app = web.Application()
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook", posted
    finally:
        await runner.cleanup()


async def test_a_webhook_is_signed_and_tried_again_while_its_server_fails() -> None:
    async with server([503, 200]) as (url, posted):
        await to_webhook(url, "a secret", pauses_s=(0.0, 0.0))(a_notice())
    (_, first), (headers, body) = posted
    assert first == body
    assert json.loads(body)["notice"]["run"] == "r1"
    assert headers["X-Remit-Signature"] == f"sha256={hmac.new(b'a secret', body, hashlib.sha256).hexdigest()}"
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (302, 1), (500, 3)])
async def test_a_webhook_that_refuses_is_logged_without_its_address(
    caplog: pytest.LogCaptureFixture, status: int, tries: int
) -> None:
    async with server([status]) as (url, posted):
        await to_webhook(url, pauses_s=(0.0, 0.0))(a_notice())
    assert (len(posted), f"did not take one: status {status}" in caplog.text) == (tries, True)
    assert url not in caplog.text
    assert "X-Remit-Signature" not in posted[0][0]


async def test_a_webhook_that_is_not_there_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    await to_webhook("http://127.0.0.1:9/", pauses_s=())(a_notice())
    assert "did not take one: Client" in caplog.text


# ── the desktop ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_where_there_is_no_desktop_that_is_logged_once_and_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG, "remit.relay")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path / 'none'}")
    deliver = to_desktop()
    await deliver(a_notice())
    await deliver(a_notice())
    own = [each for each in caplog.records if each.name == "remit.relay"]
    assert [each.levelname for each in own] == ["DEBUG"]
    assert own[0].getMessage().startswith("no notifications on this desktop: ")


# ── the team file ─────────────────────────────────────────────────────────────────────────────────────────────────────


def team_with(folder: Path, notify: str) -> Any:
    file = folder / "remit.toml"
    file.write_text(f'[relay]\ngateway = "ws://127.0.0.1:9"\n[relay.notify]\n{notify}\n', encoding="utf-8")
    return load_team(file, secrets=False, code=False)


DESKTOP = """<node><interface name="org.freedesktop.Notifications">
<method name="GetCapabilities"><arg direction="out" type="as"/></method>
<method name="GetServerInformation"><arg direction="out" type="s"/><arg direction="out" type="s"/>
<arg direction="out" type="s"/><arg direction="out" type="s"/></method>
<method name="CloseNotification"><arg direction="in" type="u"/></method>
<method name="Notify">
<arg direction="in" type="s"/><arg direction="in" type="u"/><arg direction="in" type="s"/><arg direction="in" type="s"/>
<arg direction="in" type="s"/><arg direction="in" type="as"/><arg direction="in" type="a{sv}"/>
<arg direction="in" type="i"/><arg direction="out" type="u"/>
</method>
<signal name="NotificationClosed"><arg type="u"/><arg type="u"/></signal>
<signal name="ActionInvoked"><arg type="u"/><arg type="s"/></signal>
</interface></node>"""


class Desktop:
    """The notifications of a desktop, by the specification of freedesktop.org."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str, str]] = []

    def answer(self, message: Message) -> Message | None:
        match message.member:
            case "Introspect":
                return Message.new_method_return(message, "s", [DESKTOP])
            case "GetCapabilities":
                return Message.new_method_return(message, "as", [["body"]])
            case "GetServerInformation":
                return Message.new_method_return(message, "ssss", ["desktop", "tests", "1", "1.2"])
            case "Notify":
                app, _, _, title, body, *_ = message.body
                self.shown.append((app, title, body))
                return Message.new_method_return(message, "u", [len(self.shown)])
            case _:
                return None


async def test_a_desktop_shows_each_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = shutil.which("dbus-daemon")
    if daemon is None:
        pytest.skip("needs dbus-daemon, which most desktops have")
    address = f"unix:path={tmp_path / 'bus'}"
    command = [daemon, "--session", "--nofork", "--print-address", f"--address={address}"]
    bus = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with bus, contextlib.ExitStack() as stack:
        stack.callback(bus.kill)
        assert bus.stdout is not None
        await asyncio.to_thread(bus.stdout.readline)  # it listens
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        connection = await MessageBus(bus_address=address).connect()
        desktop = Desktop()
        connection.add_message_handler(desktop.answer)
        await connection.request_name("org.freedesktop.Notifications")
        async with notifier(tmp_path, to_desktop()) as sender:
            sender.changed(ASKED)
            sender.changed(FAILED)
        assert [app for app, *_ in desktop.shown] == ["Remit", "Remit"]
        assert [body for *_, body in desktop.shown] == ["mine, turn 1", "mine, turn 1"]
        connection.disconnect()


@pytest.mark.parametrize(
    ("notify", "says"),
    [
        ("command = []", "expected a program and its arguments"),
        ('webhook = "http://example.org/x"', "begins with https://, or on this machine"),
        ('webhook = "ftp://x"', "expected the address of a server"),
        ('secret = "$NAME"', "`secret` is for a `webhook`"),
        ('sound = "loud"', "unknown key; known keys: command, desktop"),
    ],
)
def test_a_mistake_in_the_team_file_is_said(tmp_path: Path, notify: str, says: str) -> None:
    with pytest.raises(RemitError) as raised:
        team_with(tmp_path, notify)
    assert says in str([each.message for each in raised.value.fault.problems]) + str(raised.value.fault.message)


def test_a_team_that_asks_for_none_has_no_notifications(tmp_path: Path) -> None:
    assert notifier_of(team_with(tmp_path, "desktop = false")) is None
    hook = team_with(tmp_path, 'webhook = "http://localhost:1/x"\nsecret = "$HOOK"\ndesktop = true\ncommand = ["x"]')
    assert isinstance(notifier_of(hook, {"HOOK": "s"}), Notifier)
    with pytest.raises(RemitError, match="HOOK is not set"):
        notifier_of(hook, {})
