"""Which hubs of the team are present, and which agents they host."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import nats.errors
from msgspec.structs import replace
from nats.aio.msg import Msg
from nats.js import api
from nats.js.errors import BucketNotFoundError, NoKeysError, NoStreamResponseError, NotFoundError

from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, Fault, fault
from remit.transports.nats.connection import LOST, BusSettings, Connection, in_words
from remit.transports.nats.proofs import BusProofs, may_not_host
from remit.transports.nats.subjects import PresentHub, Subjects, encode, read_present, token

log = logging.getLogger("remit")

# A team has at most some thousand hubs, and each start is another one.
MOST_KNOWN = 10_000

_GONE = (NoStreamResponseError, NotFoundError, BucketNotFoundError)


_WHAT = "the presence of a hub"


class _KnownHub(NamedTuple):
    """What another hub last said about itself, when it was heard, and the name of the hub that signed it."""

    heard: float
    hub: PresentHub
    signer: str


class Presence:
    """Says again and again what this hub hosts, and hears the same of the others.

    The bucket serves hubs that come later; those that are there hear each message as it is published. A bucket reports
    no expiry, so each hub counts the time since it last heard of another.
    """

    def __init__(
        self,
        connection: Connection,
        subjects: Subjects,
        proofs: BusProofs,
        own: str,
        describe: Callable[[], PresentHub],
        heard: Callable[[Iterable[AgentCard]], None],
    ) -> None:
        self._connection = connection
        self._subjects = subjects
        self._proofs = proofs
        self._own = token(own)
        self._describe = describe
        self._on_heard = heard
        self._others: dict[str, _KnownHub] = {}
        self._known: dict[str, None] = {}
        """The newest hubs that are or were present."""
        self._changed = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._troubled = False
        self._lives_s = connection.settings.presence_s

    async def open(self) -> None:
        """Listen to the other hubs from now on; `connected` says what this one hosts."""
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def connected(self) -> None:
        """Listen to the others, read who is there, and say what this hub hosts."""
        await self._connection.subscribe(self._subjects.presence, self._heard)
        await self._connection.settle()
        await self._make_bucket()  # the server may have lost it
        await self.read()
        await self.say()

    async def close(self) -> None:
        """Say nothing more."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait({self._beating})

    def hosts(self, agent: str) -> list[PresentHub]:
        """Return the other hubs that take requests for an agent."""
        return [hub for hub in self.hubs() if not hub.draining and any(each.card.name == agent for each in hub.agents)]

    def has_heard(self, hub: str) -> bool:
        """Return whether a hub is or was present."""
        return token(hub) in self._known

    def hubs(self) -> list[PresentHub]:
        """Return the other hubs that are present."""
        oldest = asyncio.get_running_loop().time() - self._lives_s
        self._others = {name: known for name, known in self._others.items() if known.heard >= oldest}
        return [known.hub for known in self._others.values()]

    async def wait_for_host(self, agent: str, within_s: float) -> bool:
        """Return whether a hub hosts an agent, once one does or *within_s* is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while not self.hosts(agent):
            if loop.time() >= end:
                return False
            self._changed.clear()
            try:
                async with asyncio.timeout(end - loop.time()):
                    await self._changed.wait()
            except TimeoutError:
                pass
        return True

    async def say(self) -> None:
        """Say what this hub hosts now."""
        if not self._connection.connected:
            return
        subject = self._subjects.present(self._own)
        payload = self._proofs.sign(subject, encode(self._describe()))
        try:
            await self._connection.jetstream.publish(subject, payload)
        except _GONE:  # the storage was wiped
            await self._make_bucket()
            await self._connection.jetstream.publish(subject, payload)

    async def _make_bucket(self) -> None:
        config = api.KeyValueConfig(
            bucket=self._subjects.bucket, ttl=self._lives_s, history=1, storage=api.StorageType.MEMORY
        )
        await self._connection.jetstream.create_key_value(config)  # pyright: ignore[reportUnknownMemberType]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._lives_s / 3)
            try:
                await self.say()
            except LOST as error:
                if self._connection.connected and not self._troubled:
                    log.warning("other hubs cannot be told what this one hosts: %s", in_words(error))
                    self._troubled = True
            else:
                self._troubled = False

    async def read(self) -> None:
        """Read who is there from the bucket."""
        try:
            bucket = await self._connection.jetstream.key_value(self._subjects.bucket)
            names = await bucket.keys()  # pyright: ignore[reportUnknownMemberType]
        except (NoKeysError, BucketNotFoundError):  # nobody is there
            return
        for name in names:
            try:
                entry = await bucket.get(name)
            except nats.errors.Error:
                continue  # it expired a moment ago
            self._note(name, entry.value or b"", stored=True)

    async def _heard(self, message: Msg) -> None:
        self._note(message.subject.rpartition(".")[2], message.data)

    def _note(self, name: str, raw: bytes, *, stored: bool = False) -> None:
        if name == self._own:
            return
        if not raw and not self._proofs.required:
            self._others.pop(name, None)
            return
        lives_ms = round(self._lives_s * 1_000)
        found = self._proofs.read(self._subjects.present(name), raw, _WHAT, keep_ms=lives_ms, stored=stored)
        if found is None:
            return
        try:
            hub = read_present(found.body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.warning("invalid presence of hub %s", name[:100])
            return
        if (why := self._contradiction(name, hub, found.hub)) is not None:
            self._proofs.refuse(_WHAT, why)
            return
        self._known[name] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._others[name] = _KnownHub(asyncio.get_running_loop().time(), hub, found.hub)
        self._on_heard([each.card for each in hub.agents])
        self._changed.set()

    def _contradiction(self, name: str, hub: PresentHub, signer: str) -> Fault | None:
        """Return why the hub that signed a message may not say this."""
        known = self._others.get(name)
        if known is not None and known.signer != signer:
            return fault(Code.PERMISSION_DENIED, f"the hub {signer} may not speak for a hub of {known.signer}")
        names = [each.card.name for each in hub.agents]
        return next((may_not_host(signer, each) for each in names if not self._proofs.may_host(signer, each)), None)


async def present_hubs(settings: BusSettings, team: str) -> list[PresentHub] | None:
    """Return the hubs of a team that are present, without becoming one; None if the bus cannot be reached."""
    connection, subjects = Connection(settings, f"{team} list"), Subjects(team)
    proofs = BusProofs(settings.proofs, lambda what, why: log.warning("refused %s: %s", what, why.message))
    presence = Presence(connection, subjects, proofs, "", lambda: PresentHub(team), lambda _: None)
    await connection.open()
    try:
        if not connection.connected:
            return None
        await presence.read()
        return presence.hubs()
    except LOST:
        return None
    finally:
        await connection.close()


def shown_card(card: AgentCard) -> AgentCard:
    """Return a card as other hubs see it: they do not need the instructions of its team."""
    return replace(card, prompt="") if card.prompt else card
