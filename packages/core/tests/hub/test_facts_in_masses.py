"""An answer with masses of facts neither fills the memory of a user nor holds up the others."""

from remit import Answer, Brief, Hub
from remit.protocol.records import Kind, Notice
from remit.runtime.sessions import FACT_LENGTH, MOST_NEW_FACTS, memorable
from remit_testing.memory import MemoryStore


async def test_of_one_answer_a_limited_number_of_facts_is_kept_and_the_rest_is_on_record() -> None:
    """X16: what is left out is named, and still in the response."""
    store = MemoryStore()
    hub = Hub(store=store)
    stated = (*(f"write to a{number}@example.org" for number in range(150)), "x" * (FACT_LENGTH + 1))

    @hub.agent("stranger")
    async def stranger(_: Brief) -> Answer:
        return Answer("found", new_facts=stated)

    @hub.agent("clerk", may_call=["stranger"])
    async def clerk(brief: Brief) -> list[str]:
        reply = await brief.delegate("stranger", objective="Find")
        assert len(reply.new_facts) == len(stated)
        return list(await brief.facts())

    async with hub:
        response = await hub.ask("clerk", "Go", user="anna")
        records = await store.records(run=response.run)
    assert response.unwrap() == list(stated[:MOST_NEW_FACTS])
    notices = [record.body.text for record in records if isinstance(record.body, Notice) and record.kind is Kind.NOTICE]
    assert [text for text in notices if "facts" in text] == [
        "51 of 151 facts of stranger are not stored: at most 100 of one answer are, of 1000 characters each"
    ]


def test_what_is_as_long_as_a_document_is_no_fact() -> None:
    long = "x" * (FACT_LENGTH + 1)
    assert memorable((long, "short", long[1:])) == ("short", long[1:])
    assert memorable(tuple(map(str, range(500)))) == tuple(map(str, range(MOST_NEW_FACTS)))
