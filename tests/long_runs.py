"""A run with as many delegations as a test wants, written into a store as if it had happened."""

from msgspec.structs import replace

from remit.ports import Store
from remit.protocol.envelope import VERSION, Request, Response, Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind
from remit.protocol.remit import Remit
from remit.runtime.root_request import new_run_id

WIDTH = 99
STEP_MS = 3
# One of so many failed.
FAILED = 250


async def long_run(store: Store, delegations: int, *, user: str = "ada", started_ms: int = 1_790_000_000_000) -> str:
    """Record a run of *boss*, who asks clerks, each of whom asks readers; return its id."""
    run = new_run_id(started_ms)
    remit = Remit(user=user, depth=0, max_depth=5, time_ms=600_000, tokens=10_000_000)
    root = Request(
        version=VERSION,
        id=run,
        origin="user",
        target="boss",
        remit=remit,
        objective="File the papers of ten years",
        run=run,
        session=run,
        created_ms=started_ms,
    )
    await store.submit(root, b"digest", worker="past", lease_ms=60_000)
    clerk, place, spent = "", 0, 0
    ends: list[tuple[int, Request, int]] = []
    for number in range(1, delegations):
        at_ms = started_ms + number * STEP_MS
        if number % (WIDTH + 1) == 1:
            place += 1
            clerk = f"{run}.{place}"
            request = replace(
                root, id=clerk, parent=run, origin="boss", target="clerk", objective=f"Sort the papers of box {place}"
            )
            store.append(Kind.DELEGATION, at_ms, run, clerk, replace(request, session=clerk, created_ms=at_ms))
            ends.append((started_ms + min(number + WIDTH, delegations) * STEP_MS, request, WIDTH * 12))
            continue
        path = f"{clerk}.{number % (WIDTH + 1)}"
        request = replace(
            root, id=path, parent=clerk, origin="clerk", target="reader", objective=f"Read page {number} of the box"
        )
        store.append(Kind.DELEGATION, at_ms, run, path, replace(request, session=path, created_ms=at_ms))
        store.append(Kind.RESULT, at_ms + STEP_MS, run, path, _response(request, STEP_MS, 12, number % FAILED == 0))
        spent += 12
        if store.full:
            await store.room()
    for at_ms, request, tokens in ends:
        store.append(Kind.RESULT, at_ms, run, request.id, _response(request, WIDTH * STEP_MS, tokens))
    took = delegations * STEP_MS
    await store.finish(run, 1, _response(root, took, spent + 500), started_ms + took)
    return run


def _response(request: Request, took: int, tokens: int, failed: bool = False) -> Response:
    why = fault(Code.DELEGATION_FAILED, "the page cannot be read") if failed else None
    return Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=Status.FAILED if failed else Status.SUCCESS,
        run=request.run,
        result=None if failed else f"read {request.objective}",
        usage=Usage(prompt=tokens),
        duration_ms=took,
        fault=why,
    )
