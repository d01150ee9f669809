"""Tells a person that a run needs them: on the desktop, by a program, or by a webhook; each occasion once."""

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout
from msgspec import Struct
from msgspec.structs import replace

from remit_relay.session.moves import ENDED, SessionState
from remit_relay.session.run import Overlay

# ── which changes need a person ───────────────────────────────────────────────────────────────────────────────────────

NoticeKind = Literal["draft", "permission", "error", "limit", "revoked", "done"]

TITLES: dict[NoticeKind, str] = {
    "draft": "A draft needs your review",
    "permission": "Your agent asks for permission",
    "error": "A run was stopped by an error",
    "limit": "A run has ended at its limit",
    "revoked": "A run has ended: a device was revoked",
    "done": "The objective is met",
}


class RunNotice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a person should know about a run; it has no words of the agents but in `text`."""

    id: str
    """The same for the same occasion, also after a restart."""
    kind: NoticeKind
    run: str
    profile: str
    device: str
    turn: int
    """The turn that it is about, from 1."""
    text: str = ""
    """The draft, the question, the failure or the result, if texts are wanted."""

    @property
    def title(self) -> str:
        return TITLES[self.kind]


def notices_of(run: Overlay) -> Iterator[RunNotice]:
    """Yield what a person should know about a run as it stands now; a run that its user stopped needs nobody."""
    if run.state is SessionState.READY_TO_SEND and run.draft is not None:
        yield _notice(run, "draft", run.draft.id, run.draft.text)
    for question in run.questions:
        yield _notice(run, "permission", question.id, question.title)
    if run.state is SessionState.ERROR:
        # The next failure is another occasion, although nothing was sent in between.
        yield _notice(run, "error", f"{run.turn}.{run.prompts}.{run.failures}", run.failure)
    if run.ended == "done":
        yield _notice(run, "done", "", run.result)
    elif run.ended is not None and run.ended != "user":
        yield _notice(run, "revoked" if run.ended == "revoked" else "limit", run.ended, run.banner)


def needs_person(run: Overlay) -> bool:
    """Return whether a run does not go on without a person."""
    return any(each.kind in ("draft", "permission", "error") for each in notices_of(run))


def _notice(run: Overlay, kind: NoticeKind, occasion: str, text: str) -> RunNotice:
    turn = run.turn + 1 if kind in ("draft", "permission") else max(1, run.turn)
    key = f"{run.id}:{kind}:{occasion}"
    return RunNotice(id=key, kind=kind, run=run.id, profile=run.profile, device=run.device, turn=turn, text=text)


# ── notifications ─────────────────────────────────────────────────────────────────────────────────────────────────────


if TYPE_CHECKING:
    from desktop_notifier import DesktopNotifier

# A person has been told long before; whatever hangs is given up.
TIMEOUT_S = 10.0
# The first try, and two more, after these pauses: a server that restarts is back by then.
PAUSES_S = (1.0, 5.0)
# More than a person can have open; older ones are told of by the runs themselves.
MOST_WAITING = 100
# Occasions that are remembered over a restart, the newest; a run has about three in a turn.
MOST_REMEMBERED = 2_000
SIGNATURE = "X-Remit-Signature"

_log = logging.getLogger("remit.relay")


class SentNotice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a program or a webhook gets, as JSON."""

    schema: str = "remit.notice/1"
    title: str
    notice: RunNotice
    waiting: int
    """How many runs wait for a person now."""


Deliver = Callable[[SentNotice], Awaitable[None]]


class Notifier:
    """Hears the changes of runs, and delivers what a person should know; open while the block lasts.

    The occasions that were told are kept in a file, so that none is told again after a restart.
    """

    def __init__(
        self,
        deliverers: Sequence[Deliver],
        notified_file: Path,
        displayed: Callable[[Overlay], Overlay],
        *,
        texts: bool,
    ) -> None:
        self._deliverers = deliverers
        self._file = notified_file
        self._displayed = displayed
        self._texts = texts
        self._notified: dict[str, None] = {}
        self._waiting: set[str] = set()
        self._queue: asyncio.Queue[SentNotice] = asyncio.Queue(MOST_WAITING)

    async def __aenter__(self) -> Self:
        self._notified = dict.fromkeys(await asyncio.to_thread(_read_ids, self._file))
        self._working = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(TimeoutError):  # the last notice, of a run that has just ended, still goes out
            async with asyncio.timeout(TIMEOUT_S):
                await self._queue.join()
        self._working.cancel()
        await asyncio.wait([self._working])

    def changed(self, run: Overlay) -> None:
        """Take note of a change of a run; what must be told is delivered later, in the background."""
        waits = run.state not in ENDED and needs_person(run)
        (self._waiting.add if waits else self._waiting.discard)(run.id)
        for notice in notices_of(run):
            if notice.id in self._notified:
                continue
            self._notified[notice.id] = None
            text = ""
            if self._texts:
                text = next((each.text for each in notices_of(self._displayed(run)) if each.id == notice.id), "")
            sent = SentNotice(title=notice.title, notice=replace(notice, text=text), waiting=len(self._waiting))
            try:
                self._queue.put_nowait(sent)
            except asyncio.QueueFull:
                _log.warning("a notification was dropped: %s others wait to be delivered", MOST_WAITING)

    async def _work(self) -> None:
        while True:
            sent = await self._queue.get()
            # Before it is delivered: rather not at all than again at each start.
            await asyncio.to_thread(_write_ids, self._file, [*self._notified][-MOST_REMEMBERED:])
            for deliver in self._deliverers:
                try:
                    await deliver(sent)
                except Exception:  # noqa: BLE001 - where a task would end, and it is logged
                    _log.exception("a notification was not delivered")
            self._queue.task_done()


def _read_ids(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []


def _write_ids(file: Path, ids: Sequence[str]) -> None:
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_text("".join(f"{each}\n" for each in ids), encoding="utf-8")
        new.replace(file)
    except OSError as error:
        _log.warning("%s cannot be written: %s; a notification may come again", file, error.strerror)


# ── ways to tell ──────────────────────────────────────────────────────────────────────────────────────────────────────


def to_desktop() -> Deliver:
    """Return the notifications of this desktop; where there is none, that is logged once, and nothing happens."""
    able = True
    # One for all notices: each has a connection to the desktop's bus.
    desktop: DesktopNotifier | None = None

    async def deliver(sent: SentNotice) -> None:
        nonlocal able, desktop
        if not able:
            return
        try:
            # Slow to load, and absent without the extra `relay`.
            from desktop_notifier import DesktopNotifier

            async with asyncio.timeout(TIMEOUT_S):
                desktop = desktop or DesktopNotifier(app_name="Remit")
                # It only logs that it could not send; asking what the desktop can do raises the reason.
                await desktop.get_capabilities()
                await desktop.send(sent.title, in_words(sent))
        except Exception as error:  # noqa: BLE001 - whatever a desktop lacks, the run goes on
            able = False
            _log.debug("no notifications on this desktop: %s", error)

    return deliver


def in_words(sent: SentNotice) -> str:
    """Return the text below the title."""
    notice = sent.notice
    text = f"{notice.profile}, turn {notice.turn}"
    if sent.waiting > 1:
        text += f"; {sent.waiting} runs wait for you"
    return f"{text}\n{notice.text}" if notice.text else text


def to_program(command: Sequence[str], folder: Path) -> Deliver:
    """Return a program, started without a shell, that reads each notice as JSON from its stdin."""

    async def deliver(sent: SentNotice) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            _log.warning("the program for notifications, %s, cannot be started: %s", command[0], error.strerror)
            return
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await process.communicate(msgspec.json.encode(sent) + b"\n")
        except TimeoutError:
            _log.warning("the program for notifications, %s, was ended after %s s", command[0], TIMEOUT_S)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                await process.wait()
        if process.returncode:
            _log.warning("the program for notifications, %s, exited with code %s", command[0], process.returncode)

    return deliver


def to_webhook(url: str, secret: str = "", pauses_s: Sequence[float] = PAUSES_S) -> Deliver:
    """Return a web address to which each notice is posted as JSON, signed with HMAC-SHA-256 if there is a secret."""

    async def deliver(sent: SentNotice) -> None:
        body = msgspec.json.encode(sent)
        headers = {"Content-Type": "application/json"}
        if secret:
            headers[SIGNATURE] = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
        why = ""
        async with ClientSession(timeout=ClientTimeout(total=TIMEOUT_S)) as session:
            for pause_s in (*pauses_s, None):
                try:
                    async with session.post(url, data=body, headers=headers, allow_redirects=False) as reply:
                        status = reply.status
                    if status < 300:
                        return
                    why = f"status {status}"
                    if status < 500 and status != 429:
                        break  # the same request would be refused again
                except (ClientError, OSError, TimeoutError) as error:
                    why = type(error).__name__
                if pause_s is not None:
                    await asyncio.sleep(pause_s)
        # Without the address: it may hold a key.
        _log.warning("the webhook for notifications did not take one: %s", why)

    return deliver
