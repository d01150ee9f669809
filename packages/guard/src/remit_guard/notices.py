"""Tells a person on the desktop that a question of the guard waits."""

import asyncio
import html
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable

from remit.hub.hub import Hub
from remit.runtime.approvers import InboxApprover
from remit.runtime.ports import Approver, Decision, Question

# A notifier that hangs is given up; the question waits in the inbox all the same.
PATIENCE_S = 10
_APPLE = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")

Show = Callable[[Question], None]
"""Shows a question to whoever looks at the guard."""


def asking(hub: Callable[[], Hub], show: Show | None, *, desktop: bool) -> Approver:
    """Return an approver that puts a question into the inbox of a hub, and tells that it waits there."""

    waiting = Counter[str]()

    async def ask(question: Question) -> Decision:
        store = hub().store
        await store.put(question)  # it can be answered once it is told
        telling = None
        if not waiting[question.id]:
            if show is not None:
                show(question)
            telling = asyncio.create_task(notify("A coding tool waits for you", question.text)) if desktop else None
        waiting[question.id] += 1
        try:
            return await InboxApprover(store)(question)
        finally:
            waiting[question.id] -= 1
            if telling is not None:
                telling.cancel()
                await asyncio.wait([telling])

    return ask


async def notify(title: str, text: str) -> None:
    """Show a notification; nothing happens where there is no notifier, or it does not work."""
    command = desktop_command(title, text)
    if command is None:
        return
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return
    try:
        await _within(process.wait())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _within(work: Awaitable[object]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            await work
    except TimeoutError:
        pass


def desktop_command(title: str, text: str) -> list[str] | None:
    """Return the command that shows a notification on this desktop; None: there is none."""
    if program := shutil.which("notify-send"):
        return [program, "--app-name=Remit", "--", title, html.escape(text, quote=False)]  # its text may have markup
    if program := shutil.which("osascript"):
        return [program, *(part for line in _APPLE for part in ("-e", line)), title, text]
    return None
