"""Pages of a list: each takes bounded work, however few records a filter selects."""

from remit.protocol.records import Kind, Record
from remit.runtime.listing import list_records
from remit.runtime.ports import MOST_LOOKED_AT, MOST_READ, RecordFilter
from remit_testing.samples import progress


def a_record(seq: int) -> Record:
    return Record(seq=seq, kind=Kind.PROGRESS, at_ms=seq, run="run-one", session="session-one", body=progress("half"))


async def nothing(_: RecordFilter, above: int, below: int, size: int) -> list[Record]:
    assert below - above <= MOST_LOOKED_AT
    assert size
    return []


async def everything(_: RecordFilter, above: int, below: int, size: int) -> list[Record]:
    return [a_record(seq) for seq in range(below - 1, max(above, below - 1 - size), -1)]


async def test_a_page_without_results_says_where_to_go_on() -> None:
    wanted = RecordFilter(kinds=frozenset({Kind.BREAK}))
    assert await list_records(nothing, wanted, before=MOST_LOOKED_AT + 10, limit=50) == ([], 11)
    assert await list_records(nothing, wanted, before=11, limit=50) == ([], None)


async def test_with_an_index_all_rows_are_looked_at() -> None:
    async def find(_: RecordFilter, above: int, below: int, size: int) -> list[Record]:
        assert above == 0
        return [a_record(1)] if below > 1 and size else []

    page = await list_records(find, RecordFilter(run="run-one"), before=3 * MOST_LOOKED_AT, limit=50)
    assert ([record.seq for record in page.records], page.next) == ([1], None)


async def test_no_more_than_a_number_of_bodies_is_read_to_find_an_agent() -> None:
    page = await list_records(everything, RecordFilter(agent="absent"), before=20_001, limit=50)
    assert page == ([], 20_001 - MOST_READ)
    page = await list_records(everything, RecordFilter(agent="prime"), before=20_001, limit=150)
    assert [record.seq for record in page.records] == list(range(20_000, 19_850, -1))
    assert page.next == 19_851
