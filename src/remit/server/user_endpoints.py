"""The endpoint that erases users."""

from typing import Protocol, runtime_checkable
from urllib.parse import unquote

from msgspec import Struct

from remit.protocol.errors import Code, RemitError, fault
from remit.server.bodies import Receive, Scope, Send, headers_of, send_value
from remit.server.delegations import Delegations


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

    def __init__(self, delegations: Delegations) -> None:
        self._hub = delegations.hub
        self._delegations = delegations

    async def erase(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`DELETE /v1/users/{user}`."""
        await self._delegations.sender(scope, headers_of(scope))
        user = unquote(scope["path_params"]["user"])
        store = self._hub.store
        if not isinstance(store, ErasesUsers):
            raise RemitError(fault(Code.STORE_UNAVAILABLE, "the store of this hub cannot erase users"))
        done = await store.erase(user)
        if done.refused:
            message = f"not all of it was erased: {len(done.refused)} parts of the record do not verify"
            raise RemitError(fault(Code.STORE_UNAVAILABLE, message, suggestion="Check it with `remit audit verify`."))
        await send_value(
            send, ErasedUser(subject=done.subject, records=done.rows, facts=done.facts, values=done.values)
        )
