"""The stored Olm sessions with each known device: which one decrypts a message, and which ones are dropped."""

from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from remit_relay.device.identity import Card
from remit_relay.device.peers import PeerDevice
from remit_relay.device.state import DeviceFile
from remit_relay.e2e.account import PICKLE_KEY, keep_account, load_account, olm
from remit_relay.e2e.streams import MAX_SEALED, RejectionReason, split_frame

if TYPE_CHECKING:
    from vodozemac import Account, AnyOlmMessage, Session

# Both sides may open and renew sessions at the same time, while older messages are still in transit.
KEPT_SESSIONS = 5
# The names of dropped sessions are kept: with a fallback key the same message could open the same session again.
KEPT_NAMES = 500
KEPT_MARKS = 4_096

Mark = Literal["sealed", "message"]


class _Kept(Struct, frozen=True):
    name: str
    pickle: str
    mine: bool
    """Whether this device opened it."""
    answered: bool


class Live(Struct, frozen=True):
    """A session in memory, which is stored if all goes well."""

    row: int
    session: "Session"
    mine: bool
    answered: bool


class Read(Struct, frozen=True):
    """The plaintext, and the changes that are not stored yet."""

    plain: bytes
    live: Live
    account: "Account | None" = None
    """Set if the message opened the session and so used up a key."""


class OlmSessions:
    """The sessions of a device in its state file. Everything runs in the caller's transaction."""

    def __init__(self, state: DeviceFile) -> None:
        self._state = state
        self._warm: dict[int, tuple[bytes, Live]] = {}
        """A cache of sessions with their bytes in the file: if those are unchanged, they need not be read."""

    def load(self, row: int) -> Live | None:
        """Return a session, if it still exists."""
        session_row = self._state.one("SELECT peer, content FROM sessions WHERE id = ? AND content IS NOT NULL", row)
        return None if session_row is None else self._live(row, session_row[0], session_row[1])

    def keep(self, peer: int, live: Live) -> int:
        """Store a session and return its row; the oldest is dropped if there are too many."""
        name = live.session.session_id
        kept = _Kept(name=name, pickle=live.session.pickle(PICKLE_KEY), mine=live.mine, answered=live.answered)
        content = self._state.lock(kept, f"sessions/{peer}")
        if live.row:
            self._state.execute("UPDATE sessions SET content = ? WHERE id = ?", content, live.row)
            self._warm[live.row] = content, live
            return live.row
        added = self._state.execute(
            "INSERT INTO sessions (peer, tag, content) VALUES (?, ?, ?) RETURNING id",
            peer,
            self._state.tag(name),
            content,
        ).fetchall()
        row: int = added[0][0]
        # The cache must not outlive the stored session.
        self._warm = {row: (content, structs.replace(live, row=row))}
        self._state.execute(
            "UPDATE sessions SET content = NULL WHERE content IS NOT NULL AND id IN "
            "(SELECT id FROM sessions WHERE peer = ? ORDER BY id DESC LIMIT -1 OFFSET ?)",
            peer,
            KEPT_SESSIONS,
        )
        self._state.execute(
            "DELETE FROM sessions WHERE id IN "
            "(SELECT id FROM sessions WHERE peer = ? ORDER BY id DESC LIMIT -1 OFFSET ?)",
            peer,
            KEPT_NAMES,
        )
        return row

    def begin(self, card: Card, key: bytes) -> Live:
        """Return a new session with the device of *card* and a *key* that it signed. Raises `ValueError` if invalid."""
        public = olm().Curve25519PublicKey.from_bytes
        session = load_account(self._state).create_outbound_session(public(bytes.fromhex(card.olm)), public(key))
        return Live(row=0, session=session, mine=True, answered=False)

    def keep_account(self, account: "Account") -> None:
        keep_account(self._state, account)

    def read(self, row: int, peer: PeerDevice, sealed: bytes, current: int) -> Read | RejectionReason:
        """Decrypt what *peer* (row number *row*) sent, or return why it cannot be decrypted. Changes nothing."""
        if not 1 < len(sealed) <= MAX_SEALED or (frame := split_frame(sealed)) is None:
            return RejectionReason.GARBAGE
        if self.is_marked(row, "sealed", digest_of(sealed)):
            return RejectionReason.REPLAY
        read = self._decrypt_message(row, peer, frame.kind, frame.ratchet, current)
        if isinstance(read, RejectionReason):
            return read
        plain = frame.opened(read.plain)
        return RejectionReason.UNREADABLE if plain is None else structs.replace(read, plain=plain)

    def _decrypt_message(
        self, row: int, peer: PeerDevice, kind: int, ratchet: bytes, current: int
    ) -> Read | RejectionReason:
        try:
            message = olm().AnyOlmMessage.from_parts(kind, ratchet)
            pre_key = message.to_pre_key()
        except ValueError:
            return RejectionReason.GARBAGE
        if pre_key is not None:
            name = pre_key.session_id()
            session_row = self._state.one(
                "SELECT id, content FROM sessions WHERE peer = ? AND tag = ?", row, self._state.tag(name)
            )
            if session_row is None:
                return self._opened(peer, message)
            if session_row[1] is None:
                return RejectionReason.UNREADABLE
            return (
                self._decrypted(self._live(session_row[0], row, session_row[1]), message) or RejectionReason.UNREADABLE
            )
        rows = self._state.rows(
            "SELECT id, content FROM sessions WHERE peer = ? AND content IS NOT NULL ORDER BY id = ? DESC, id DESC",
            row,
            current,
        )
        for session, content in rows:
            if read := self._decrypted(self._live(session, row, content), message):
                return read
        return RejectionReason.UNREADABLE

    def _opened(self, peer: PeerDevice, message: "AnyOlmMessage") -> Read | RejectionReason:
        pre_key = message.to_pre_key()
        assert pre_key is not None
        account = load_account(self._state)
        sender = olm().Curve25519PublicKey.from_bytes(bytes.fromhex(peer.card.olm))
        try:
            session, plain = account.create_inbound_session(sender, pre_key)
        except ValueError as error:
            # The library has one class for all errors; it is rejected either way, and the reason is for people.
            return (
                RejectionReason.KEY_SWAP if "identity key doesn't match" in str(error) else RejectionReason.UNREADABLE
            )
        return Read(plain=plain, live=Live(row=0, session=session, mine=False, answered=True), account=account)

    @staticmethod
    def _decrypted(live: Live, message: "AnyOlmMessage") -> Read | None:
        try:
            plain = live.session.decrypt(message)
        except ValueError:
            return None
        return Read(plain=plain, live=structs.replace(live, answered=True))

    def _live(self, row: int, peer: int, content: bytes) -> Live:
        # Removed from the cache: the caller changes it, and if that is not stored it differs from the file.
        was, live = self._warm.pop(row, (b"", None))
        if live is not None and was == content:
            return live
        kept = self._state.unlock(content, f"sessions/{peer}", _Kept)
        session = olm().Session.from_pickle(kept.pickle, PICKLE_KEY)
        return Live(row=row, session=session, mine=kept.mine, answered=kept.answered)

    # ── replay protection ─────────────────────────────────────────────────────────────────────────────────────────────

    def is_marked(self, peer: int, kind: Mark, tag: bytes) -> bool:
        """Return whether this is among the last few thousand that were seen."""
        query = "SELECT 1 FROM marks WHERE peer = ? AND kind = ? AND tag = ?"
        return self._state.one(query, peer, kind, tag) is not None

    def mark(self, peer: int, kind: Mark, tag: bytes) -> None:
        """Remember that this was seen."""
        added = self._state.execute(
            "INSERT OR IGNORE INTO marks (peer, kind, tag) VALUES (?, ?, ?) RETURNING id", peer, kind, tag
        ).fetchone()
        # Not each time, because it counts all rows.
        if added is not None and added[0] % 64 == 0:
            self._state.execute(
                "DELETE FROM marks WHERE id IN "
                "(SELECT id FROM marks WHERE peer = ? AND kind = ? ORDER BY id DESC LIMIT -1 OFFSET ?)",
                peer,
                kind,
                KEPT_MARKS,
            )


def digest_of(sealed: bytes) -> bytes:
    """Return the digest under which encrypted bytes are remembered."""
    return sha256(sealed).digest()[:16]
