"""The endpoint that erases users."""

from typing import Protocol, runtime_checkable

from msgspec import Struct

from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.engine import Engine
from remit_server.operations import ApiRequest


class ErasedCounts(Protocol):
    """What a store erased."""

    @property
    def subject(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def facts(self) -> int: ...

    @property
    def values(self) -> int: ...

    @property
    def refused(self) -> tuple[str, ...]: ...


@runtime_checkable
class ErasesUsers(Protocol):
    """A store that can erase users."""

    async def erase(self, user: str) -> ErasedCounts: ...


class ErasedUser(Struct, frozen=True, kw_only=True):
    """What was erased of a user."""

    subject: str
    """The digest of the user's name under which the erasure is recorded."""
    records: int
    facts: int
    values: int
    """Redacted values."""


class UserEndpoints:
    """The endpoint for users."""

    def __init__(self, hub: Engine) -> None:
        self._hub = hub

    async def erase(self, call: ApiRequest) -> ErasedUser:
        """`DELETE /v1/users/{user}`."""
        user = call.named("user")
        store = self._hub.store
        if not isinstance(store, ErasesUsers):
            raise RemitError(fault(Code.STORE_UNAVAILABLE, "the store of this hub cannot erase users"))
        done = await store.erase(user)
        if done.refused:
            message = f"not all of it was erased: {len(done.refused)} parts of the record do not verify"
            raise RemitError(fault(Code.STORE_UNAVAILABLE, message, suggestion="Check it with `remit audit verify`."))
        return ErasedUser(subject=done.subject, records=done.rows, facts=done.facts, values=done.values)
