"""The types of the librarian dialect: queries with their context, answers, errors and referrals."""

from typing import Annotated

from msgspec import Meta, Struct

from remit.protocol.envelope import Json, Text
from remit.protocol.remit import NAME_PATTERN, Chain, Count, Name, Names


class DelegationContext(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """How a query came about, and what is left for it."""

    original_query: Text
    delegation_chain: Chain
    """The librarians above the called one; the last one is the caller."""
    delegation_depth: Count
    remaining_timeout: Count
    start_time: Count
    parent_span_id: Annotated[str, Meta(max_length=200, pattern=NAME_PATTERN)]
    """Empty: it is not traced."""
    delegation_reason: str = ""
    refined_by: Name | None = None
    timeout: Count | None = None
    """For the whole query, since its start; less remains."""
    available_delegates: Names | None = None
    remit: dict[str, Json] | None = None


class ExtendedContext(DelegationContext, frozen=True, kw_only=True):
    """A context with the fields of the `Context` that it extends: on the wire they are all on one level."""

    more: dict[str, Json] = {}


class LibrarianRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One librarian asks another, in another process."""

    query: str
    context: ExtendedContext
    version: str
    request_id: Name
    timestamp: Count


class DelegateContext(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Why someone else should answer."""

    reason: str = ""
    remit: dict[str, Json] | None = None


class DelegateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who should answer instead; without a query, the same query."""

    to: Name
    query: str = ""
    context: DelegateContext = DelegateContext()


class LibrarianError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why there is no answer."""

    code: Name
    message: str
    recoverable: bool | None = None
    suggestion: str | None = None


class LibrarianResponse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An answer, an error, or a referral."""

    answer: str | None = None
    sources: tuple[Json, ...] = ()
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    metadata: dict[str, Json] = {}
    error: LibrarianError | None = None
    delegate: DelegateRequest | tuple[DelegateRequest, ...] | None = None
