"""Facts that hold personal data come back to their user in later conversations; chains hand artifacts on."""

from pathlib import Path
from typing import Any

import pytest

from remit import Answer, Artifact, Brief, Call, Code, Hub, RemitError
from remit_testing.memory import MemoryStore

EMAIL = "anna@example.org"


def office(path: Path) -> Hub:
    hub = Hub(store=str(path / "remit.db"))

    @hub.agent("clerk", may_call=["scribe"])
    async def clerk(brief: Brief) -> Answer:
        if brief.text.startswith("What"):
            facts = await brief.facts()
            assert EMAIL not in "".join(facts), "the agent sees a token"
            return Answer("; ".join(facts))
        reply = await brief.delegate("scribe", objective=brief.text)
        return Answer(reply.unwrap(), new_facts=(f"writes from {brief.text.split()[-1]}",))

    @hub.agent("scribe")
    async def scribe(brief: Brief) -> Answer:
        return Answer("noted", new_facts=(f"scribe heard: {brief.objective}",))

    assert clerk
    assert scribe
    return hub


async def test_a_fact_with_personal_data_comes_back_restored_in_a_later_conversation(tmp_path: Path) -> None:
    """X12, X16: to its own user, also after a restart and from the store; to nobody else."""
    async with office(tmp_path) as hub:
        (await hub.ask("clerk", f"I write from {EMAIL}", user="anna")).unwrap()
        at_once = await hub.ask("clerk", "What is known?", user="anna")
    async with office(tmp_path) as hub:
        later = await hub.ask("clerk", "What is known?", user="anna", session="another")
        assert await hub.outcome(later.run) == later, "looked up later it is the same"
        other = await hub.ask("clerk", "What is known?", user="bob")
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    known = f"scribe heard: I write from {EMAIL}; writes from {EMAIL}"
    assert set(later.unwrap().split("; ")) == set(known.split("; "))
    assert at_once.unwrap() == later.unwrap()
    assert other.unwrap() == ""
    assert EMAIL.encode() not in stored


ROWS = Artifact(type="table", value=[[1, 2]], label="receipts")


def chained(seen: list[Any]) -> Hub:
    hub = Hub(store=MemoryStore())

    async def byte(_: Brief) -> Answer:
        return Answer("two rows", artifacts=(ROWS,))

    async def tag(brief: Brief) -> str:
        assert brief.handoff is not None
        seen.append((brief.input, brief.handoff.prior_outputs))
        return "tagged"

    async def prime(brief: Brief) -> Any:
        forward: Any = brief.text
        calls = [Call(target=name, objective=f"Step {name}") for name in ("byte", "tag", "last")]
        return [reply.unwrap() for reply in await brief.chain(calls, forward=forward)]

    hub.add("byte", byte)
    hub.add("tag", tag)
    hub.add("last", tag)
    hub.add("prime", prime, may_call=["*"])
    return hub


async def test_a_chain_hands_on_artifacts_where_it_is_asked_to() -> None:
    """X8: the second step gets the artifacts of the first as its input; a step without any hands on its result."""
    seen: list[Any] = []
    async with chained(seen) as hub:
        (await hub.ask("prime", "artifacts", user="u-1")).unwrap()
        (await hub.ask("prime", "result", user="u-1")).unwrap()
    rows = {"type": "table", "value": [[1, 2]], "label": "receipts"}
    both = {"result": "two rows", "artifacts": [rows]}
    assert seen == [
        ([rows], {"byte": both}),
        ("tagged", {"byte": both, "tag": "tagged"}),
        ("two rows", {"byte": "two rows"}),
        ("tagged", {"byte": "two rows", "tag": "tagged"}),
    ]


async def test_what_a_chain_cannot_hand_on_is_refused_by_name() -> None:
    async with chained([]) as hub:
        response = await hub.ask("prime", "everything", user="u-1")
    assert response.fault is not None
    assert "forward" in response.fault.message
    with pytest.raises(RemitError) as refused:
        response.unwrap()
    assert refused.value.fault.code is Code.MALFORMED_ENVELOPE
