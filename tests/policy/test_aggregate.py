"""Several responses become one answer."""

from hypothesis import given
from hypothesis import strategies as st

from remit.policy.aggregate import merge_all
from remit.protocol.codec import decode, encode
from remit.protocol.envelope import Answer, Artifact, Response, Source
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from samples import a_response
from strategies import responses

FAILED = a_response(target="ledger", status=Status.FAILED, result=None, fault=fault(Code.DELEGATION_FAILED, "broke"))


def test_what_succeeded_is_combined_in_the_order_in_which_it_was_asked_for() -> None:
    own, shared = Source(owner_scope="u-1", source_id="a"), Source(owner_scope="public", source_id="a")
    table, link = Artifact(type="table", value=[[1]]), Artifact(type="url", value="https://example.org")
    one = a_response(
        target="crystal",
        result="Spending grows.",
        confidence=0.5,
        artifacts=(table,),
        new_facts=("pays rent", "has a car"),
        sources=(own,),
        warnings=("old data",),
    )
    other = a_response(
        target="tag",
        status=Status.PARTIAL,
        result={"categories": 3},
        confidence=1.0,
        artifacts=(link,),
        new_facts=("has a car",),
        sources=(Source(owner_scope="u-1", source_id="a", relevance=0.5), shared),
        warnings=("half done",),
    )
    assert merge_all([one, FAILED, other]) == Answer(
        'Spending grows.\n\n{"categories":3}',
        confidence=0.75,
        artifacts=(table, link),
        new_facts=("pays rent", "has a car"),
        sources=(own, shared),
        warnings=("old data", "half done"),
        finished=("crystal", "tag"),
        unfinished=("ledger",),
        metadata={"aggregated": True, "responseCount": 2, "strategy": "merge-all"},
    )


def test_confidence_is_averaged_over_those_who_state_one() -> None:
    rated = [a_response(confidence=0.25), a_response(), a_response(confidence=0.75)]
    merged, unrated = merge_all(rated), merge_all([a_response()])
    assert merged is not None
    assert unrated is not None
    assert (merged.confidence, unrated.confidence) == (0.5, None)


def test_where_nothing_succeeded_there_is_nothing_to_merge() -> None:
    assert [merge_all([]), merge_all([FAILED, FAILED])] == [None, None]


@given(st.lists(responses, max_size=3))
def test_what_is_merged_is_an_answer_like_any_other(several: list[Response]) -> None:
    merged = merge_all(several)
    assert (merged is None) == (not any(response.ok for response in several))
    assert merged is None or decode(encode(merged), Answer) == merged
