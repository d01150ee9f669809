"""The mailboxes of one gateway, in memory: in each, one device meets one other to pair with it."""

import secrets
from collections.abc import Iterable, Mapping

from remit.runtime.ports import Clock
from remit_relay.gateway.ports import ENDED_S, MailboxContent, MailboxSide
from remit_relay.pairing.code import FIRST_MAILBOX, LAST_MAILBOX

# With a thousand mailboxes, a number is taken with a probability of one in nine.
TRIES = 20


def random_number() -> int:
    """Return a number for a mailbox."""
    return FIRST_MAILBOX + secrets.randbelow(LAST_MAILBOX - FIRST_MAILBOX + 1)


class _Mailbox:
    __slots__ = ("is_ended", "is_joined", "notes", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.is_joined = False
        self.is_ended = False
        self.notes: dict[MailboxSide, list[bytes]] = {"host": [], "guest": []}


class MemoryMailboxes:
    """`Mailboxes` in memory; a gateway that is restarted has none, and devices that were pairing begin again."""

    is_shared = False

    def __init__(self) -> None:
        self._boxes: dict[int, _Mailbox] = {}

    def start(self, clock: Clock) -> None:
        """Use this clock."""
        self._clock = clock

    async def open_mailbox(self, most: int, seconds: float) -> int | None:
        now = self._clock.now()
        self._boxes = {number: box for number, box in self._boxes.items() if box.until > now}
        if len(self._boxes) >= most:
            return None
        for _ in range(TRIES):
            number = random_number()
            if number not in self._boxes:
                self._boxes[number] = _Mailbox(now + seconds)
                return number
        return None

    async def join_mailbox(self, number: int, seconds: float) -> bool:
        box, now = self._boxes.get(number), self._clock.now()
        if box is None or box.is_joined or box.is_ended or box.until <= now:
            return False
        box.is_joined = True
        box.until = now + seconds
        return True

    async def put_note(self, number: int, side: MailboxSide, place: int, body: bytes) -> None:
        box = self._boxes.get(number)
        if box is not None and not box.is_ended and len(box.notes[side]) == place:
            box.notes[side].append(body)

    async def end_mailbox(self, number: int) -> None:
        box = self._boxes.get(number)
        if box is not None:
            box.is_ended = True
            box.until = min(box.until, self._clock.now() + ENDED_S)

    async def read_mailboxes(self, numbers: Iterable[int]) -> Mapping[int, MailboxContent]:
        now = self._clock.now()
        found = ((number, self._boxes.get(number)) for number in numbers)
        return {
            number: MailboxContent(tuple(box.notes["host"]), tuple(box.notes["guest"]), box.is_ended)
            for number, box in found
            if box is not None and box.until > now
        }
