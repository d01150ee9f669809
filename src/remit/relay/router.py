"""Who gets what comes to a device: answers go to who asked, an agent or a run; questions to what it shares.

What nobody in this process can take, and somebody in another could, stays in the inbox until that one is at work.
"""

import logging
from collections.abc import Callable

from remit.protocol.errors import RemitError
from remit.relay.call_shared import RemoteCalls
from remit.relay.client.delivery import MessageDelivery
from remit.relay.e2e.channel import Opened, Sealer
from remit.relay.messages import catalog, types
from remit.relay.messages.types import (
    AnswerMessage,
    DeclineMessage,
    Letter,
    OffersMessage,
    QuestionMessage,
    WithdrawMessage,
)
from remit.relay.serve_shared import NOTHING_SHARED, Sharing, decline
from remit.relay.session import remote_commands
from remit.relay.session.moves import ENDED
from remit.relay.session_service import SessionService, awaits

_log = logging.getLogger("remit.relay")


async def route_messages(
    post: MessageDelivery,
    host: SessionService | None,
    sharing: Sharing | None,
    *,
    sealer: Sealer,
    now_ms: Callable[[], int],
    shares_nothing: bool = False,
    errands: RemoteCalls | None = None,
) -> None:
    """Give each message to whom it is for, until cancelled; what is for nobody is forgotten.

    Where nothing is *sharing*, a question waits for a process that does, unless this device *shares_nothing* at all.
    """
    reading = _Reading(post, host, sharing, sealer, now_ms, shares_nothing, errands)
    async for opened in post:
        try:
            letter = types.decode_message(opened.body)
        except RemitError as error:
            _log.warning("%s: %s", opened.sender, error.fault.message)
            await post.taken(opened)
        else:
            await reading.take(opened, letter)


class _Reading:
    def __init__(
        self,
        post: MessageDelivery,
        host: SessionService | None,
        sharing: Sharing | None,
        sealer: Sealer,
        now_ms: Callable[[], int],
        shares_nothing: bool,
        errands: RemoteCalls | None,
    ) -> None:
        self._post = post
        self._host = host
        self._sharing = sharing
        self._sealer = sealer
        self._now_ms = now_ms
        self._shares_nothing = shares_nothing
        self._errands = errands
        self._left: set[str] = set()
        """The messages whose answers stay in the inbox: each gets one."""

    async def take(self, opened: Opened, letter: Letter) -> None:
        match letter:
            case OffersMessage():
                await self._post.do(catalog.hear, self._sealer, opened, letter)
            case QuestionMessage():
                await self._ask(opened, letter)
            case AnswerMessage() | DeclineMessage():
                await self._answer(opened, letter)
            case WithdrawMessage():
                await self._withdraw(opened, letter)

    async def _ask(self, opened: Opened, asks: QuestionMessage) -> None:
        if self._sharing is not None:
            self._sharing.take(opened, asks)
        elif self._shares_nothing:
            try:
                await self._post.do(decline, self._sealer, opened, asks, NOTHING_SHARED, self._now_ms())
            except RemitError as error:
                _log.warning("a question could not be declined, and stays in the inbox: %s", error.fault.message)

    async def _withdraw(self, opened: Opened, letter: WithdrawMessage) -> None:
        if self._sharing is not None:
            await self._sharing.withdraw(opened, letter)
        elif self._shares_nothing:
            await self._post.taken(opened)  # the question was declined; else both wait for who shares

    async def _answer(self, opened: Opened, letter: AnswerMessage | DeclineMessage) -> None:
        if self._errands is not None and await self._errands.take(opened, letter):
            return
        if self._host is not None:
            await self._host.take(opened, letter)
        elif letter.to not in self._left and await self._post.do(self._is_awaited, opened, letter):
            self._left.add(letter.to)
        else:
            _log.info("what the device %s answered came too late, or was not asked, and is forgotten", opened.sender)
            await self._post.taken(opened)

    def _is_awaited(self, opened: Opened, letter: AnswerMessage | DeclineMessage) -> bool:
        kept = remote_commands.kept_runs(self._sealer.device.state)
        return any(run.state not in ENDED and awaits(run, opened, letter) for run in kept)
