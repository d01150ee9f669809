"""The router for incoming messages: answers go to the agent or run that asked, questions to the shared agents.

A message that only another process can handle stays in the inbox until that process runs.
"""

import logging
from collections.abc import Callable
from functools import partial

from remit.protocol.errors import RemitError
from remit_relay.call_shared import RemoteCalls
from remit_relay.client.delivery import MessageDelivery
from remit_relay.device.state import until_stored
from remit_relay.e2e.channel import MessageCipher, Opened
from remit_relay.messages import types
from remit_relay.messages.questions import decline
from remit_relay.messages.types import (
    AnswerMessage,
    DeclineMessage,
    OffersMessage,
    PeerMessage,
    QuestionMessage,
    ReadReceipt,
    RevocationMessage,
    WithdrawMessage,
)
from remit_relay.serve_shared import NOTHING_SHARED, Sharing
from remit_relay.session import repository
from remit_relay.session.moves import ENDED
from remit_relay.session_service import SessionService, awaits

_log = logging.getLogger("remit.relay")


async def route_messages(
    delivery: MessageDelivery,
    service: SessionService | None,
    sharing: Sharing | None,
    *,
    sealer: MessageCipher,
    now_ms: Callable[[], int],
    shares_nothing: bool = False,
    calls: RemoteCalls | None = None,
) -> None:
    """Route messages until cancelled; those without a receiver are dropped.

    Without *sharing*, a question waits for a process that shares, unless this device *shares_nothing* at all.
    """
    reading = _Reading(delivery, service, sharing, sealer, now_ms, shares_nothing, calls)
    async for opened in delivery:
        try:
            message = types.decode_message(opened.body)
        except RemitError as error:
            if types.is_of_later_version(opened.body):
                _log.info("dropping a message of the device %s: it is of a later version", opened.sender)
            else:
                _log.warning("%s: %s", opened.sender, error.fault.message)
            await delivery.persist(sealer.taken, opened.id)
        else:
            await until_stored(partial(reading.take, opened, message))


class _Reading:
    def __init__(
        self,
        delivery: MessageDelivery,
        service: SessionService | None,
        sharing: Sharing | None,
        sealer: MessageCipher,
        now_ms: Callable[[], int],
        shares_nothing: bool,
        calls: RemoteCalls | None,
    ) -> None:
        self._delivery = delivery
        self._service = service
        self._sharing = sharing
        self._sealer = sealer
        self._now_ms = now_ms
        self._shares_nothing = shares_nothing
        self._calls = calls
        self._left: set[str] = set()
        """The questions whose answers stay in the inbox, one for each."""
        self._read_left: set[str] = set()
        """The same for receipts."""

    async def take(self, opened: Opened, message: PeerMessage) -> None:
        match message:
            case OffersMessage():
                await self._delivery.do(types.store_offers, self._sealer, opened, message)
            case QuestionMessage():
                await self._pass_question(opened, message)
            case AnswerMessage() | DeclineMessage():
                await self._pass_answer(opened, message)
            case WithdrawMessage():
                await self._withdraw(opened, message)
            case ReadReceipt():
                await self._note_read(opened, message)
            case RevocationMessage():
                await self._delivery.do(self._revoked, opened)

    def _revoked(self, opened: Opened) -> None:
        """Note that a device has revoked this one; what waits for it ends once the change is noticed."""
        _log.warning("%s has revoked this device", self._sealer.peers.revoked_by(opened.sender).card.name)
        self._sealer.taken(opened.id)

    async def _pass_question(self, opened: Opened, question: QuestionMessage) -> None:
        if self._sharing is not None:
            self._sharing.take(opened, question)
        elif self._shares_nothing:
            try:
                await self._delivery.do(decline, self._sealer, opened, question, NOTHING_SHARED, self._now_ms())
            except RemitError as error:
                _log.warning("cannot decline a question, which stays in the inbox: %s", error.fault.message)

    async def _withdraw(self, opened: Opened, message: WithdrawMessage) -> None:
        if self._sharing is not None:
            await self._sharing.withdraw(opened, message)
        elif self._shares_nothing:
            await self._delivery.taken(opened)  # its question was declined; else both wait for a process that shares

    async def _pass_answer(self, opened: Opened, message: AnswerMessage | DeclineMessage) -> None:
        if self._calls is not None and await self._calls.take(opened, message):
            return
        if self._service is not None:
            await self._service.take(opened, message)
        elif message.to not in self._left and await self._delivery.do(self._is_awaited, opened, message):
            self._left.add(message.to)
        else:
            _log.info("dropping an answer of the device %s: nothing waits for it", opened.sender)
            await self._delivery.taken(opened)

    async def _note_read(self, opened: Opened, message: ReadReceipt) -> None:
        if self._service is not None:
            await self._service.messages.note_read(opened, message)
        elif message.to in self._read_left or not await self._delivery.do(self._is_awaited, opened, message):
            await self._delivery.taken(opened)  # else it waits for the process that has the run
        else:
            self._read_left.add(message.to)

    def _is_awaited(self, opened: Opened, message: AnswerMessage | DeclineMessage | ReadReceipt) -> bool:
        kept = repository.kept_runs(self._sealer.device.state)
        return any(run.state not in ENDED and awaits(run, opened, message) for run in kept)
