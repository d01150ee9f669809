"""The device of the owner: its identity in the state file, its card, and the Olm keys that it publishes."""

import secrets
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from remit.installed import install_command
from remit.protocol.errors import Code, RemitError, fault
from remit_relay.device.identity import Card, DeviceBundle, Published, make_card, make_prekey
from remit_relay.device.state import DeviceFile
from remit_server.transports.credentials.keys import SEED_BYTES, Pair

if TYPE_CHECKING:
    from vodozemac import Account


@cache
def olm():
    """Return vodozemac, loaded when it is first needed, or raise a `RemitError` that says how to install it.

    All its errors are `ValueError`s.
    """
    try:
        import vodozemac
    except ImportError as error:
        why = "sharing agents between devices needs the extra `relay`, which is not installed"
        todo = f"Install it: {install_command('relay')}"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=todo)) from error
    return vodozemac


# ── the device ────────────────────────────────────────────────────────────────────────────────────────────────────────

# The key for the library's own serialisation; the state file encrypts the result with the device's key.
PICKLE_KEY = bytes(32)


class _Self(Struct, frozen=True, kw_only=True):
    seed: bytes
    name: str
    gateway: str


class Device:
    """This device. Its secret keys do not leave this object."""

    def __init__(self, state: DeviceFile, pair: Pair, card: Card) -> None:
        self.state = state
        self.card = card
        self._pair = pair

    @classmethod
    def create(cls, state: DeviceFile, *, name: str, gateway: str = "") -> "Device":
        """Create a device in *state*, or raise a `RemitError` if there is one already."""
        pair = Pair(secrets.token_bytes(SEED_BYTES))
        account = olm().Account()
        card = make_card(pair, account.curve25519_key.to_bytes(), name=name, gateway=gateway)
        with state.writing():
            if state.fact("self", _Self) is not None:
                why = f"{state.path} already contains a device"
                todo = "Use it, or choose another file for a new device."
                raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=todo))
            state.keep("self", _Self(seed=pair.seed, name=name, gateway=gateway))
            keep_account(state, account)
        return cls(state, pair, card)

    @classmethod
    def load(cls, state: DeviceFile) -> "Device | None":
        """Return the device in *state*, if there is one."""
        stored = state.fact("self", _Self)
        if stored is None:
            return None
        pair = Pair(stored.seed)
        olm_key = load_account(state).curve25519_key.to_bytes()
        return cls(state, pair, make_card(pair, olm_key, name=stored.name, gateway=stored.gateway))

    @property
    def id(self) -> str:
        return self.card.device

    @property
    def public(self) -> str:
        """The public key of the device."""
        return self._pair.public

    def sign(self, message: bytes) -> bytes:
        """Return the device's signature. Each message begins with its purpose, so it cannot be used for another one."""
        return self._pair.sign(message)

    def rename(self, *, name: str | None = None, gateway: str | None = None) -> Card:
        """Change the name or gateway of the device and return its card; keys, id and code stay the same."""
        name, gateway = name or self.card.name, self.card.gateway if gateway is None else gateway
        card = make_card(self._pair, bytes.fromhex(self.card.olm), name=name, gateway=gateway)
        self.state.keep("self", _Self(seed=self._pair.seed, name=name, gateway=gateway))
        self.card = card
        return card

    def publish(self, count: int) -> Published:
        """Return *count* new one-time keys and a new fallback key for the gateway, all signed.

        The secret keys are durable before this returns. The last two fallback keys are kept, so a key that the gateway
        hands out while the next one is being published still opens a session.
        """
        olm_key = bytes.fromhex(self.card.olm)
        with self.state.writing():
            account = load_account(self.state)
            untyped: Any = account  # the stubs of the library have no fallback keys
            account.generate_one_time_keys(count)
            untyped.generate_fallback_key()
            once = [key.to_bytes() for key in account.one_time_keys.values()]
            (fallback,) = (key.to_bytes() for key in untyped.fallback_key.values())
            account.mark_keys_as_published()
            keep_account(self.state, account)
        bundle = DeviceBundle(card=self.card, fallback=make_prekey(self._pair, olm_key, use="fallback", key=fallback))
        one_time = (make_prekey(self._pair, olm_key, use="once", key=key) for key in once)
        return Published(
            bundle=msgspec.msgpack.encode(bundle), one_time=tuple(msgspec.msgpack.encode(key) for key in one_time)
        )

    def __repr__(self) -> str:
        return f"Device({self.id})"


def load_account(state: DeviceFile) -> "Account":
    """Return the device's Olm account, as it was last stored."""
    pickled = state.fact("account", str)
    assert pickled is not None, "a device is stored together with its account"
    return olm().Account.from_pickle(pickled, PICKLE_KEY)


def keep_account(state: DeviceFile, account: "Account") -> None:
    """Store the account, in the same transaction as what depends on its change."""
    state.keep("account", account.pickle(PICKLE_KEY))
