"""What a hub is made of, wired together."""

from msgspec import Struct

from remit.policy.limits import Limits
from remit.policy.verdict import Guard
from remit.runtime.ledger import Ledger
from remit.runtime.ports import Approver, Clock, Store, Transport
from remit.runtime.registry import Registry


class Parts(Struct, frozen=True, kw_only=True):
    """The parts that dispatch, runs and desks work with; made once, by the hub."""

    registry: Registry
    ledger: Ledger
    store: Store
    transport: Transport
    clock: Clock
    limits: Limits
    guards: tuple[Guard, ...]
    approver: Approver | None
