"""Conversations over HTTP: the list of them, and what was said in one."""

from typing import Any

from remit import Brief, Hub
from remit.policy.reception import Permission, Sender
from serving import ANNA, OPERATOR, WEB, client_of, got, posted, serving

READER = Sender(name="reader", permissions=frozenset({Permission.READ}))
BOB = Sender(name="bob-app", users=frozenset({"bob"}))
LAB = Sender(name="lab", targets=frozenset({"lab"}))


async def told(session: Any, *asks: dict[str, Any]) -> list[Any]:
    """Ask each in turn, and return the answers."""
    return [(await posted(session, ask))[1] for ask in asks]


def add_agents(hub: Hub) -> None:
    @hub.agent("prime", may_call=["tag"])
    async def prime(brief: Brief) -> str:
        if brief.objective == "Fail":
            raise ValueError("secret details")
        if brief.objective == "Sort":
            brief.note("decision", "By month")
            return str((await brief.delegate("tag", objective="Name the colours")).result)
        return f"Heard {brief.text}"

    @hub.agent("tag")
    async def tag(_: Brief) -> str:
        return "red"

    assert prime
    assert tag


async def test_conversations_are_listed_and_read_in_pages(hub: Hub) -> None:
    add_agents(hub)
    async with serving(hub, WEB, READER) as server, client_of(server) as web, client_of(server, "reader") as reader:
        await told(
            web,
            {"target": "prime", "user": "anna", "objective": "Sort", "session": "receipts"},
            {"target": "prime", "user": "bob", "objective": "Mail bob@example.org", "session": "mail"},
            {"target": "prime", "user": "anna", "objective": "Fail", "session": "receipts"},
        )
        status, page = await got(reader, "/v1/sessions")
        assert status == 200
        lines = [(each["session"], each["user"], each["agent"]) for each in page["sessions"]]
        assert lines == [("receipts", "anna", "prime"), ("mail", "bob", "prime")]
        assert page["sessions"][0]["objective"] == "Fail"
        assert page["sessions"][1]["objective"].startswith("Mail [EMAIL:")
        assert [(each["runs"], each["messages"]) for each in page["sessions"]] == [(2, 4), (1, 2)]
        assert page["next"] is None
        _, first = await got(reader, "/v1/sessions?limit=1")
        _, second = await got(reader, f"/v1/sessions?limit=1&before={first['next']}")
        assert [each["session"] for each in first["sessions"] + second["sessions"]] == ["receipts", "mail"]
        for query, found in (
            ("user=bob", ["mail"]),
            ("agent=tag", []),
            ("q=FAIL", ["receipts"]),
            ("until=1", []),
            ("since=1", ["receipts", "mail"]),
            ("limit=0", []),
        ):
            _, page = await got(reader, f"/v1/sessions?{query}")
            assert [each["session"] for each in page["sessions"]] == found, query

        _, talk = await got(reader, "/v1/sessions/receipts")
        said = [(each["role"], each["name"], each["text"], each["status"], each["code"]) for each in talk["messages"]]
        assert said == [
            ("user", "user", "Sort", None, None),
            ("assistant", "prime", "red", "success", None),
            ("user", "user", "Fail", None, None),
            ("assistant", "prime", "prime failed; the reason is on record at its hub", "failed", "DELEGATION_FAILED"),
        ]
        assert (talk["user"], talk["agent"], talk["next"]) == ("anna", "prime", None)
        assert [(each["kind"], each["text"]) for each in talk["notes"]] == [("decision", "By month")]
        assert all(each["delegation"] == each["run"] for each in talk["messages"])
        _, last = await got(reader, "/v1/sessions/receipts?limit=1")
        _, before = await got(reader, f"/v1/sessions/receipts?limit=3&before={last['next']}")
        assert [each["text"] for each in before["messages"] + last["messages"]] == [each[2] for each in said]

        # The conversation of an agent with an agent is named after its delegation.
        run = talk["messages"][0]["run"]
        _, below = await got(reader, f"/v1/sessions/{run}.1")
        assert [each["text"] for each in below["messages"]] == ["Name the colours", "red"]
        assert {each["delegation"] for each in below["messages"]} == {f"{run}.1"}


async def test_a_sender_without_read_sees_its_own_conversations_alone(hub: Hub) -> None:
    add_agents(hub)
    async with (
        serving(hub, WEB, ANNA, BOB, LAB, OPERATOR) as server,
        client_of(server) as web,
        client_of(server, ANNA.name) as anna,
        client_of(server, BOB.name) as bob,
        client_of(server, LAB.name) as lab,
    ):
        [answer] = await told(web, {"target": "prime", "user": "anna", "objective": "Sort", "session": "receipts"})
        for session, may_see in ((anna, True), (bob, False), (lab, False)):
            _, page = await got(session, "/v1/sessions")
            assert [each["session"] for each in page["sessions"]] == ["receipts"] * may_see
            assert (await got(session, "/v1/sessions/receipts"))[0] == (200 if may_see else 404)
            # What agents say to each other is for readers of everything.
            assert (await got(session, f"/v1/sessions/{answer['run']}.1"))[0] == 404
            assert (await got(session, "/v1/sessions?user=anna&agent=prime"))[1]["sessions"] == page["sessions"]
        status, body = await got(anna, "/v1/sessions?usr=anna")
        assert (status, body["fault"]["problems"][0]["path"]) == (400, "usr")
        assert (await got(anna, "/v1/sessions/absent"))[0] == 404


async def test_an_operator_of_one_team_sees_the_conversations_of_that_team(hub: Hub) -> None:
    add_agents(hub)
    team = Sender(name="team", targets=frozenset({"tag"}), permissions=frozenset({Permission.READ}))
    async with serving(hub, WEB, team) as server, client_of(server) as web, client_of(server, "team") as ops:
        [answer, _] = await told(
            web,
            {"target": "prime", "user": "anna", "objective": "Sort", "session": "receipts"},
            {"target": "tag", "user": "anna", "objective": "Sort", "session": "colours"},
        )
        _, page = await got(ops, "/v1/sessions")
        assert [each["session"] for each in page["sessions"]] == ["colours"]
        for session, status in (("colours", 200), ("receipts", 404), (f"{answer['run']}.1", 404), ("absent", 404)):
            assert (await got(ops, f"/v1/sessions/{session}"))[0] == status, session


async def test_a_long_message_is_cut_and_says_so(hub: Hub) -> None:
    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.text * 3

    assert echo
    async with serving(hub, WEB, READER) as server, client_of(server) as web, client_of(server, "reader") as reader:
        text = "word " * 3_000
        await told(web, {"target": "echo", "user": "anna", "objective": text, "session": "long"})
        _, talk = await got(reader, "/v1/sessions/long")
        assert [(len(each["text"]), each["is_cut"]) for each in talk["messages"]] == [(15_000, False), (20_000, True)]
