"""What a hub is made of, wired together."""

from msgspec import Struct

from remit.policy.limits import Limits
from remit.policy.verdict import Guard
from remit.runtime.answer_cache import Cache
from remit.runtime.ledger import Ledger
from remit.runtime.live_text import Outflow
from remit.runtime.ports import Approver, Clock, Store, Transport
from remit.runtime.redactor import Redactor
from remit.runtime.registry import Registry
from remit.runtime.sessions import Sessions


class RuntimeContext(Struct, kw_only=True):
    """The parts that dispatch, runs and desks work with; made once, by the hub.

    Limits and guards may be exchanged while it is open: what is judged next is judged by the new ones.
    """

    registry: Registry
    ledger: Ledger
    store: Store
    transport: Transport
    clock: Clock
    limits: Limits
    guards: tuple[Guard, ...]
    approver: Approver | None
    redactor: Redactor
    sessions: Sessions
    outflow: Outflow
    cache: Cache
    sample_ratio: float = 1.0
    """The share of the runs that begin here whose spans are kept, so that other hubs keep those of the same."""
    remarks: dict[str, tuple[str, ...]] = {}
    """By run, what its sender is told besides the outcome, until the run is admitted."""
    passed_on: dict[str, dict[str, str]] = {}
    """By run, what came beside its request for others to read; it goes along wherever the run goes."""
