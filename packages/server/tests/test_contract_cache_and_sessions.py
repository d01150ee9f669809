"""The contract at a server: kept answers, and one session id for several specialists."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from remit import Brief, Capability, Hub
from remit_server.dialects import find
from remit_server.dialects.http_agent import dialect_agent
from samples import a_request
from serving import client_of, serving

REQUEST: dict[str, Any] = {
    "source_agent": "ORC",
    "target_agent": "ANL",
    "capability_code": "ANL_RATE",
    "inputs_json": {"text": "the rate of exchange of the dollar"},
}


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def platform(tmp_path: Path, ran: list[str]) -> Hub:
    hub = Hub(store=str(tmp_path / "remit.db"))
    kept: dict[str, Any] = {"read_only": True, "cache_ms": 60_000}
    capability = Capability(code="ANL_TOLD", **kept)
    alike = Capability(code="ANL_ALIKE", cache_similar=True, **kept)

    @hub.agent(
        "ANL", capabilities=[Capability(code="ANL_RATE", **kept), capability, alike, Capability(code="ANL_BOOK")]
    )
    async def analyst(brief: Brief) -> Any:
        ran.append(brief.remit.user)
        before = len(await brief.history()) if brief.request.capability == "ANL_TOLD" else None
        return {"times": len(ran), "before": before}

    @hub.agent("DOC", capabilities=["DOC_WRITE"])
    async def scribe(brief: Brief) -> Any:
        state = await brief.state()
        await brief.update_state(pages=state.get("pages", 0) + 1)
        said = [message.text for message in await brief.history()]
        return {"pages": state.get("pages", 0), "said": len(said), "session": brief.request.parent_session}

    assert analyst
    assert scribe
    return hub


class Platform:
    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._count = 0

    async def __call__(self, context: dict[str, Any] | None = None, **more: Any) -> Any:
        self._count += 1
        body = REQUEST | {"request_id": f"r-{self._count}", "context": {"user_id": "anna"} | (context or {})} | more
        async with self._session.post("/dialects/contract", json=body) as reply:
            return await reply.json()


def status_of(body: Any) -> str:
    assert body["status"] == "SUCCESS", body
    return body["metadata"]["cache_status"]


async def test_an_answer_is_kept_for_its_user_and_the_status_says_so(platform: Hub, ran: list[str]) -> None:
    """K2, C9: `cache_status` over HTTP."""
    async with serving(platform) as server, client_of(server, "north") as north:
        ask = Platform(north)
        first, again = await ask(), await ask()
        other = await ask({"user_id": "bert"})
        booked = [await ask(capability_code="ANL_BOOK") for _ in range(2)]
    assert [status_of(each) for each in (first, again, other, *booked)] == ["miss", "hit", "miss", "bypass", "bypass"]
    assert again["result_json"] == first["result_json"]
    assert again["request_id"] == "r-2"
    assert ran == ["anna", "bert", "anna", "anna"]


async def test_the_same_in_other_words_is_similar_where_the_capability_says_so(platform: Hub, ran: list[str]) -> None:
    """C9: structured inputs must be equal; the words of a hub that speaks by contract are compared as texts."""
    said = (
        "When does the train from Paris to Rome leave?",
        "Please tell me: when does the train from Paris to Rome leave",
    )
    async with serving(platform) as server, client_of(server, "north") as north:
        found: list[Any] = []
        for number, text in enumerate((*said, said[0])):
            asked = a_request(id=f"s-{number}", target="ANL", capability="ANL_ALIKE", objective=text, run="", input={})
            body = find("contract").request(asked).body
            async with north.post(
                "/dialects/contract", data=body, headers={"content-type": "application/json"}
            ) as reply:
                found.append(await reply.json())
    assert [status_of(each) for each in found] == ["miss", "similar", "hit"]
    assert len(ran) == 1


async def test_answers_are_kept_within_a_session_unless_they_were_made_from_it(platform: Hub, ran: list[str]) -> None:
    """K2: a platform names its session with every request; what read the conversation is made anew."""
    async with serving(platform) as server, client_of(server, "north") as north:
        ask = Platform(north)
        one, two = {"session_id": "sess-789"}, {"session_id": "sess-790"}
        plain = [await ask(context) for context in (one, one, two)]
        told = [await ask(one, capability_code="ANL_TOLD") for _ in range(2)]
    assert [status_of(each) for each in plain] == ["miss", "hit", "miss"]
    assert [status_of(each) for each in told] == ["miss", "miss"]
    assert told[0]["result_json"]["before"] < told[1]["result_json"]["before"]
    assert len(ran) == 4


async def test_specialists_share_a_session_id_and_each_has_its_own_part_of_it(platform: Hub) -> None:
    """K13: state per agent that has participated; the session id passes through."""
    async with serving(platform) as server, client_of(server, "north") as north:
        ask = Platform(north)
        context = {"session_id": "sess-789"}
        analysed = await ask(context, capability_code="ANL_TOLD")
        write: dict[str, Any] = {"target_agent": "DOC", "capability_code": "DOC_WRITE"}
        written = [await ask(context, **write) for _ in range(2)]
        stranger = [await ask(context | {"user_id": "bert"}, **write) for _ in range(2)]
        unnamed = await ask(**write)
    assert analysed["status"] == "SUCCESS"
    assert [each["result_json"]["pages"] for each in written] == [0, 1]
    assert written[0]["result_json"]["said"] == 0
    assert written[1]["result_json"]["said"] > 0
    assert written[0]["result_json"]["session"] == "sess-789@north"
    assert [each["result_json"]["pages"] for each in stranger] == [0, 1], "the same id is another session of his own"
    assert unnamed["result_json"]["pages"] == 0


async def test_a_session_id_too_long_for_an_agents_part_names_the_field(platform: Hub) -> None:
    async with serving(platform) as server, client_of(server, "north") as north:
        refused = await Platform(north)({"session_id": 198 * "s"})
    assert (refused["status"], refused["error_code"]) == ("ERROR", "MALFORMED_ENVELOPE")
    assert "$.context.session_id" in refused["error_message"]


async def test_an_employee_of_another_hub_that_speaks_by_contract_goes_on_in_its_session(
    platform: Hub, tmp_path: Path
) -> None:
    """The session of an agent here threads through the contract at another hub."""
    near = Hub(name="north", store=str(tmp_path / "near.db"))
    async with serving(platform) as server:
        url = f"{server.address}/dialects/contract"
        near.add("DOC", dialect_agent("contract", url, token="north"), capabilities=["DOC_WRITE"])
        async with near:
            pages = [
                (await near.ask("DOC", user="anna", capability="DOC_WRITE", input={}, session="s-1")).unwrap()
                for _ in range(2)
            ]
    assert [each["pages"] for each in pages] == [0, 1]
