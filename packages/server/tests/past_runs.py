"""Runs of past days in a store, for tests of what is summed up of them."""

from remit.ports import Store
from remit.protocol.envelope import MODEL, VERSION, Request, Response, Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind
from remit.protocol.remit import Remit
from remit.runtime.clock import LoopClock

HOUR_MS = 3_600_000
MODELS = ("acme:large", "acme:small")


async def write_past_runs(store: Store, *, hours: int, every: int = 1) -> int:
    """Record a run of `boss`, which calls `clerk`, in every so-many-th of the last hours; return how many.

    Every fifth call of `clerk` fails. Users, tokens and times go up and down with the hours.
    """
    now_ms, runs = LoopClock().wall_ms(), 0
    for hour in range(hours, 0, -every):
        at_ms, run, runs = now_ms - hour * HOUR_MS, f"past-{hour}", runs + 1
        user = ("anna", "ben", "carla")[hour % 3]
        remit = Remit(user=user, depth=0, max_depth=3, time_ms=60_000, tokens=50_000)
        root = Request(version=VERSION, id=run, origin="user", target="boss", remit=remit, run=run, objective="Go")
        child = Request(
            version=VERSION,
            id=f"{run}.1",
            parent=run,
            origin="boss",
            target="clerk",
            remit=remit,
            run=run,
            capability="FILE",
        )
        tokens, ms, failed = 400 + 37 * (hour % 24), 200 + 55 * (hour % 17), hour % 5 == 0
        answer = Response(
            version=VERSION,
            id=child.id,
            target="clerk",
            status=Status.FAILED if failed else Status.SUCCESS,
            run=run,
            usage=Usage(prompt=tokens, completion=tokens // 4),
            duration_ms=ms,
            fault=fault(Code.DELEGATION_FAILED, "the cabinet is locked") if failed else None,
            metadata={MODEL: {"name": MODELS[hour % 2]}},
        )
        end = Response(
            version=VERSION,
            id=run,
            target="boss",
            status=Status.SUCCESS,
            run=run,
            usage=Usage(prompt=tokens + 50, completion=tokens // 4),
            duration_ms=ms + 20,
        )
        store.append(Kind.STARTED, at_ms, run, run, root)
        store.append(Kind.DELEGATION, at_ms, run, run, child)
        store.append(Kind.RESULT, at_ms + ms, run, run, answer)
        store.append(Kind.RESULT, at_ms + ms + 20, run, run, end)
    await store.flush()
    return runs
