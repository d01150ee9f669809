"""Sums of a record: what is counted, for whom, and how long it is kept."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.protocol.envelope import MODEL, VERSION, Json, Request, Response, Usage
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Notice, Record, Refusal
from remit.protocol.remit import Remit
from remit_server.documents.delegation_table import ModelUse, model_in
from remit_server.documents.figures import (
    DAY_MS,
    HOUR_MS,
    HOURLY_MS,
    MOST_FAULTS,
    RecordFigures,
    SumKey,
    Sums,
    Traffic,
    class_of,
    typical_ms,
)
from remit_server.documents.spend import Pricing, spend_rows

DAY = 20_000 * DAY_MS


def request(
    path: str,
    target: str,
    *,
    user: str = "anna",
    origin: str = "user",
    capability: str | None = None,
    via: str | None = None,
    run: str = "",
    id: str = "",
) -> Request:
    run = run or path.partition(".")[0]
    parent = path.rpartition(".")[0] or None
    return Request(
        version=VERSION,
        id=id or path,
        origin=origin,
        target=target,
        remit=Remit(user=user, depth=0, max_depth=3, time_ms=1_000, tokens=1_000),
        run=run,
        parent=parent,
        capability=capability,
        via=via,
    )


def response(
    delegation: Request,
    prompt: int = 0,
    completion: int = 0,
    *,
    status: Status = Status.SUCCESS,
    ms: int = 0,
    metadata: dict[str, Json] | None = None,
    overrun: int = 0,
) -> Response:
    failed = status not in (Status.SUCCESS, Status.PARTIAL)
    return Response(
        version=VERSION,
        id=delegation.id,
        target=delegation.target,
        status=status,
        run=delegation.run,
        usage=Usage(prompt=prompt, completion=completion, overrun=overrun),
        duration_ms=ms,
        fault=fault(Code.DELEGATION_FAILED, "it broke") if failed else None,
        metadata=metadata or {},
    )


class Book:
    """A record that is written row by row."""

    def __init__(self) -> None:
        self.rows: list[Record] = []

    def write(self, body: Request | Response | Refusal | Notice, at_ms: int = DAY, run: str = "") -> None:
        match body:
            case Request():
                kind, run = Kind.STARTED if body.parent is None else Kind.DELEGATION, body.run
            case Response():
                kind, run = Kind.RESULT, body.run
            case Refusal():
                kind, run = Kind.REFUSED, body.request.run
            case Notice():
                kind = Kind.NOTICE
        self.rows.append(
            Record(seq=len(self.rows) + 1, kind=kind, at_ms=at_ms, run=run or "r", session=run or "r", body=body)
        )

    def done(self, delegation: Request, *numbers: int, at_ms: int = DAY, **how: object) -> None:
        """Write a delegation without others below it."""
        self.write(delegation, at_ms)
        self.write(response(delegation, *numbers, **how), at_ms)  # pyright: ignore[reportArgumentType]

    def figures(self, **bounds: int) -> RecordFigures:
        return folded(RecordFigures(**bounds), self.rows)


def folded(figures: RecordFigures, rows: Iterable[Record]) -> RecordFigures:
    for row in rows:
        figures.add(row)
    return figures


def sums_of(figures: RecordFigures) -> dict[SumKey, Sums]:
    sums_by_key: dict[SumKey, Sums] = {}
    for period in figures.between(0, 10**15):
        for key, sums in period.sums.items():
            sums_by_key.setdefault(key, Sums()).add(sums)
    return sums_by_key


def key(agent: str, *, user: str = "anna", model: str = "", root: str = "boss", capability: str = "") -> SumKey:
    return SumKey(user, agent, capability, model, root, "")


def test_each_agent_has_its_own_tokens_and_those_of_all_below_it() -> None:
    book = Book()
    root, child = request("r", "boss"), request("r.1", "clerk", origin="boss", capability="FILE")
    grandchild = request("r.1.1", "scribe", origin="clerk")
    book.write(root)
    book.write(child)
    book.write(grandchild)
    book.write(response(grandchild, 30, 3))
    book.write(response(child, 50, 5, ms=80))
    book.write(response(root, 150, 15, ms=100))
    totals = sums_of(book.figures())
    assert {at.agent: (sums.prompt, sums.completion, sums.total) for at, sums in totals.items()} == {
        "boss": (100, 10, 165),
        "clerk": (20, 2, 55),
        "scribe": (30, 3, 33),
    }
    assert (totals[key("boss")].runs, totals[key("clerk", capability="FILE")].runs) == (1, 0)
    (period,) = book.figures().between(0, 10**15)
    assert period.traffic == {
        ("user", "boss", "boss"): Traffic(calls=1, tokens=165, time_ms=100),
        ("boss", "clerk", "boss"): Traffic(calls=1, tokens=55, time_ms=80),
        ("clerk", "scribe", "boss"): Traffic(calls=1, tokens=33),
    }


def test_a_request_with_an_id_of_its_sender_is_found_again() -> None:
    book = Book()
    root = request("r", "boss", id="my-own", via="web")
    child = request("r.1", "clerk", origin="boss")
    book.write(root)
    book.done(child, 10)
    book.write(response(root, 30))
    assert {at.agent: (sums.tokens, at.via) for at, sums in sums_of(book.figures()).items()} == {
        "boss": (20, "web"),
        "clerk": (10, "web"),
    }


def test_every_end_is_counted_once_and_failures_by_their_code() -> None:
    book = Book()
    for number, status in enumerate(Status):
        delegation = request(f"r{number}", "boss")
        if status is Status.REFUSED:
            book.write(Refusal(request=delegation, response=response(delegation, status=status)))
        else:
            book.done(delegation, status=status, ms=10, overrun=1)
    (sums,) = sums_of(book.figures()).values()
    assert (sums.delegations, sums.runs) == (6, 6)
    assert (sums.succeeded, sums.failed, sums.refused, sums.cancelled) == (2, 2, 1, 1)
    assert sums.codes == {"DELEGATION_FAILED": 4}
    assert sum(sums.times.values()) == 5, "what was refused took no time"
    assert sums.overrun == 5


def test_a_refused_call_of_an_agent_belongs_to_the_run_of_its_caller() -> None:
    book = Book()
    root, refused = request("r", "boss", via="web"), request("r.1", "clerk", origin="boss")
    book.write(root)
    book.write(Refusal(request=refused, response=response(refused, status=Status.REFUSED)))
    book.write(response(root))
    assert {(at.agent, at.root, at.via) for at in sums_of(book.figures())} == {
        ("boss", "boss", "web"),
        ("clerk", "boss", "web"),
    }


def test_rows_whose_request_is_gone_and_other_rows_change_nothing() -> None:
    book = Book()
    book.write(Notice(delegation="r", agent="boss", text="slow"))
    book.write(response(request("r", "boss"), 10))
    root = request("s", "boss")
    book.write(root)
    book.write(response(request("s.1", "clerk"), 10))
    book.write(response(root, 10))
    book.write(request("t.1", "clerk"))
    book.write(response(request("t.1", "clerk"), 10))
    figures = book.figures()
    assert [(at.agent, sums.tokens) for at, sums in sums_of(figures).items()] == [("boss", 10)]


def test_a_request_that_a_person_edited_counts_as_it_finally_began() -> None:
    book = Book()
    root = request("r", "boss")
    book.write(root)
    book.write(request("r.1", "clerk", capability="DRAFT"))
    book.done(request("r.1", "clerk", capability="FILE"), 5)
    book.write(root)
    book.write(response(root, 5))
    assert {(at.agent, at.capability, sums.tokens) for at, sums in sums_of(book.figures()).items()} == {
        ("boss", "", 0),
        ("clerk", "FILE", 5),
    }


def test_the_model_is_the_one_that_the_record_names() -> None:
    book = Book()
    book.done(request("r", "boss"), 100, 10, metadata={MODEL: {"name": "openai:gpt-5-mini", "cached": 60}})
    book.done(request("s", "boss"), 100, 10)
    totals = sums_of(book.figures())
    assert {at.model: (sums.prompt, sums.cached) for at, sums in totals.items()} == {
        "openai:gpt-5-mini": (100, 60),
        "": (100, 0),
    }


def test_what_was_read_from_a_cache_beside_the_usage_is_spent_all_the_same() -> None:
    book = Book()
    book.done(request("r", "boss"), 100, 10, metadata={MODEL: {"name": "m", "cached": 20, "beside": 900}})
    (sums,) = sums_of(book.figures()).values()
    assert (sums.prompt, sums.cached, sums.total) == (1_000, 920, 110)


def test_a_recorded_cost_is_that_of_each_agent_and_not_estimated_again() -> None:
    book, root = Book(), request("r", "boss")
    below, whole = (
        replace(response(each, prompt), usage=Usage(prompt=prompt, cost=cost, priced=priced))
        for each, prompt, cost, priced in ((request("r.1", "clerk"), 100, 70, 100), (root, 130, 75, 110))
    )
    for row in (root, request("r.1", "clerk"), below, whole):
        book.write(row)
    figures = book.figures()
    assert {at.agent: (sums.cost, sums.priced) for at, sums in sums_of(figures).items()} == {
        "clerk": (70, 100),
        "boss": (5, 10),
    }
    rows = spend_rows(figures.between(0, 10**15), "agent", lambda _: True, Pricing())
    assert [(row.key, row.cost, row.unpriced_tokens) for row in rows] == [("clerk", 0.00007, 0), ("boss", 0.000005, 20)]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"name": "m"}, ModelUse(name="m")),
        ({"name": "m", "cached": 7, "beside": 3}, ModelUse(name="m", cached=7, beside=3)),
        ({"name": "m", "cached": -7, "beside": 1.5}, ModelUse(name="m")),
        ({"name": "m", "cached": "7"}, ModelUse(name="m")),
        ({"name": 1}, None),
        ("m", None),
        (None, None),
    ],
)
def test_what_an_agent_says_of_its_model_is_not_trusted_to_be_well_formed(
    written: Json, expected: ModelUse | None
) -> None:
    assert model_in({MODEL: written}) == expected


def test_a_delegation_that_another_hub_on_the_same_store_executes_is_counted_once() -> None:
    book = Book()
    root, handed = request("r", "boss"), request("r.1", "clerk", origin="boss", capability="FILE")
    there = request("s", "clerk", id="r.1", origin="boss@office", via="office")
    below = request("s.1", "scribe", origin="clerk")
    book.write(root)
    book.write(handed)
    book.write(there)
    book.done(below, 30)
    book.write(response(there, 50, metadata={MODEL: {"name": "m"}}))
    book.write(response(handed, 50, ms=9))
    book.write(response(root, 60))
    totals = sums_of(book.figures())
    assert {at.agent: (sums.tokens, sums.delegations, sums.runs) for at, sums in totals.items()} == {
        "boss": (10, 1, 1),
        "clerk": (20, 1, 0),
        "scribe": (30, 1, 0),
    }
    assert key("clerk", model="m", capability="FILE") in totals


def test_the_newest_failures_of_an_agent_are_kept_with_the_run_they_belong_to() -> None:
    book = Book()
    for number in range(MOST_FAULTS + 5):
        book.done(request(f"r{number}", "boss"), status=Status.FAILED, at_ms=DAY + number)
    faults = book.figures().faults["boss"]
    assert len(faults) == MOST_FAULTS
    assert (faults[-1].run, faults[-1].at_ms, faults[-1].code, faults[-1].message) == (
        f"r{MOST_FAULTS + 4}",
        DAY + MOST_FAULTS + 4,
        "DELEGATION_FAILED",
        "it broke",
    )


def test_hours_that_are_long_past_become_days() -> None:
    book = Book()
    for hour in range(3):
        book.done(request(f"r{hour}", "boss"), 10, at_ms=DAY + hour * HOUR_MS)
    assert [(each.start_ms, each.span_ms) for each in book.figures().between(0, 10**15)] == [
        (DAY + hour * HOUR_MS, HOUR_MS) for hour in range(3)
    ]
    later = DAY + HOURLY_MS + DAY_MS
    book.done(request("later", "boss"), 10, at_ms=later)
    book.done(request("late", "boss"), 10, at_ms=DAY + 5 * HOUR_MS)
    figures = book.figures()
    assert [
        (
            each.start_ms,
            each.span_ms,
            sum(sums.tokens for sums in each.sums.values()),
            sum(more.calls for more in each.traffic.values()),
        )
        for each in figures.between(0, 10**15)
    ] == [(DAY, DAY_MS, 40, 4), (later, HOUR_MS, 10, 1)]
    assert (figures.through_ms, figures.from_ms) == (later, 0)


def test_the_oldest_days_are_forgotten_when_there_are_too_many_sums() -> None:
    book = Book()
    for number in range(20):
        book.done(request(f"r{number}", f"agent-{number}"), 10, at_ms=DAY + number * HOUR_MS)
    figures = book.figures(most_sums=5)
    assert [key.agent for key in sums_of(figures)] == [f"agent-{number}" for number in range(15, 20)]
    assert figures.from_ms == DAY + 15 * HOUR_MS


@given(st.integers(0, 10**9))
def test_a_time_is_known_to_within_nine_per_cent(ms: int) -> None:
    assert abs(typical_ms(class_of(ms)) - ms) <= max(1, 0.1 * ms)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50), st.sampled_from((0.5, 0.95, 1.0)))
def test_a_percentile_is_the_time_of_one_of_the_delegations(times: list[int], share: float) -> None:
    sums = Sums()
    for ms in times:
        sums.times[class_of(ms)] = sums.times.get(class_of(ms), 0) + 1
    place = max(1, -int(-share * len(times) // 1)) - 1
    assert sums.percentile_ms(share) == typical_ms(class_of(sorted(times)[place]))


def test_without_delegations_no_time_is_known() -> None:
    assert Sums().percentile_ms(0.5) is None


@st.composite
def books(draw: st.DrawFn) -> list[Record]:
    """Records of a few runs, whose rows come in any order that a hub could write them in."""
    book, at_ms, waiting = Book(), DAY, list[Request]()
    for number in range(draw(st.integers(1, 12))):
        at_ms += draw(st.sampled_from((0, 1, HOUR_MS, DAY_MS, 9 * DAY_MS)))
        user, agent = draw(st.sampled_from(("anna", "ben"))), draw(st.sampled_from(("boss", "clerk")))
        if waiting and draw(st.booleans()):
            root = draw(st.sampled_from(waiting))
            book.done(request(f"{root.run}.{number}", agent, origin=root.target, user=root.remit.user), 5, at_ms=at_ms)
        else:
            waiting.append(request(f"r{number}", agent, user=user))
            book.write(waiting[-1], at_ms)
        if waiting and draw(st.booleans()):
            ended = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
            status = draw(st.sampled_from((Status.SUCCESS, Status.FAILED)))
            book.write(response(ended, draw(st.integers(0, 100)), status=status, ms=draw(st.integers(0, 99))), at_ms)
    return book.rows


@settings(max_examples=60)
@given(books(), st.lists(st.integers(0, 40), max_size=5))
def test_it_makes_no_difference_in_how_many_pieces_a_record_is_read(rows: list[Record], cuts: list[int]) -> None:
    pieces = RecordFigures()
    places = [0, *sorted(cut for cut in cuts if cut <= len(rows)), len(rows)]
    for start, end in pairwise(places):
        folded(pieces, rows[start:end])
        assert list(pieces.between(0, 10**15)) == list(folded(RecordFigures(), rows[:end]).between(0, 10**15))
    assert pieces.after == len(rows)
    total = sum(sums.delegations for sums in sums_of(pieces).values())
    assert total == sum(isinstance(row.body, Response) for row in rows)
