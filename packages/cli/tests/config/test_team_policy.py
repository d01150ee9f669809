"""The policy of a team file over HTTP: calls explained, drafts compared, rules and refusals with their lines."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from aiohttp import ClientSession

from remit import Code, Request
from remit.protocol.errors import TABLE, fault
from remit.protocol.remit import Remit
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cli.config.serving import serving
from remit_cli.config.team_policy import GOVERNED, RefusedCase, governing_keys, read_draft
from waiting import PATIENCE_S, eventually

BOUND_S = PATIENCE_S
_numbers = count()

TEAM = """\
# never put sk-proj-aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7dE9 here
[agents.shop]
run = "CODE:shop"
may_call = ["cashier"]

[agents.cashier]
run = "CODE:cashier"
capabilities = ["PAY"]
rate = { calls = 5, seconds = 60 }

[capabilities.PAY]
description = "Pay a sum."
tokens = 500

[limits]
max_depth = 3

[[rules]]
then = "refuse"
user = "mallory"
say = "not for mallory"

[[rules]]
then = "ask"
to = "cashier"
say = "May the cashier pay?"
edit = ["input"]
"""
CODE = """
async def shop(brief):
    return str((await brief.delegate("cashier", objective="Pay", input="5 euros")).result)

async def cashier(brief):
    return f"paid {brief.text}"
"""


def written(folder: Path, text: str = TEAM) -> Path:
    # A module is imported once in a process, wherever it lies: each test has one of its own.
    name = f"till_code_{next(_numbers)}"
    (folder / f"{name}.py").write_text(CODE, encoding="utf-8")
    file = folder / "remit.toml"
    file.write_text(text.replace("CODE", name), encoding="utf-8")
    return file


@asynccontextmanager
async def served(file: Path) -> AsyncGenerator[ClientSession]:
    async with asyncio.timeout(BOUND_S), serving(load_team(file), port=0) as made, made.server as server:
        assert made.token is not None
        headers = {"authorization": f"Bearer {made.token.read_text().strip()}"}
        async with ClientSession(server.address, headers=headers) as session:
            yield session


async def got(session: ClientSession, path: str) -> Any:
    async with session.get(path) as reply:
        assert reply.status == 200, await reply.text()
        return await reply.json()


async def explained(session: ClientSession, status: int = 200, **question: Any) -> Any:
    body = {"from": "shop", "to": "cashier", "objective": "Pay", "user": "anna", **question}
    async with session.post("/v1/policy/explain", json=body) as reply:
        assert reply.status == status, await reply.text()
        return await reply.json()


def verdicts(explanation: Any) -> dict[str, str]:
    return {each["guard"]: each["verdict"] for each in explanation["guards"]}


async def test_a_call_is_explained_guard_by_guard_and_nothing_is_started(tmp_path: Path) -> None:
    async with served(written(tmp_path)) as ops:
        explanation = await explained(ops, input="to bob@example.org", capability="PAY", max_tokens=100)
        assert (explanation["now"]["outcome"], explanation["now"]["question"]) == ("asks", "May the cashier pay?")
        assert (explanation["draft"], explanation["changed"]) == (None, [])
        decisions = verdicts(explanation["now"])
        assert (decisions["permission"], decisions["team_rules"], decisions["redaction"]) == ("allow", "ask", "rewrite")
        assert explanation["now"]["request"]["remit"]["tokens"] == 100
        assert "bob@example.org" not in str(explanation)
        refused = (await explained(ops, user="mallory"))["now"]
        assert (refused["outcome"], refused["by"], refused["fault"]["message"]) == (
            "refused",
            "team_rules",
            "not for mallory",
        )
        wrong = await explained(ops, 404, **{"from": "shopp"})
        assert "did you mean `shop`" in wrong["fault"]["message"]
        assert (await got(ops, "/v1/runs"))["runs"] == []
        _, *guards = (await got(ops, "/v1/policy/guards"))["guards"]
        assert guards[-1]["says"] == "The callee sees tokens in place of personal data and secrets."


async def test_a_draft_changes_the_verdict_and_nothing_else(tmp_path: Path) -> None:
    file = written(tmp_path)
    text = file.read_text(encoding="utf-8")
    draft = text.replace("max_depth = 3", "max_depth = 0").replace('then = "ask"', 'then = "allow"')
    draft = draft.replace('may_call = ["cashier"]', "may_call = []") + '\n[agents.new]\nrun = "nowhere:new"\n'
    async with served(file) as ops:
        explanation = await explained(ops, draft=draft)
        then = explanation["draft"]
        assert (explanation["now"]["outcome"], then["explanation"]["outcome"]) == ("asks", "refused")
        changed = {each["guard"]: (each["now"], each["then"]) for each in explanation["changed"]}
        assert changed == {
            "permission": ("allow", "refuse"),
            "depth": ("allow", "refuse"),
            "team_rules": ("ask", "allow"),
        }
        assert set(then["considered"]) == {"limits.max_depth", "rules", "agents.shop.may_call"}
        assert then["ignored"] == ["agents.new"]
        assert (await explained(ops))["now"]["outcome"] == "asks"
    assert file.read_text(encoding="utf-8") == text


def test_an_agent_that_a_draft_lets_call_a_new_one_alone_may_call_nobody(tmp_path: Path) -> None:
    """Without a name, `allow_sub_agent_calls` would mean all agents."""
    may_call = 'may_call = ["cashier"]\nallow_sub_agent_calls = true'
    team = load_team(written(tmp_path, TEAM.replace('may_call = ["cashier"]', may_call)))
    text = team.file.read_text(encoding="utf-8").replace('["cashier"]', '["new"]')
    draft = read_draft(hub_of(team), team, f'{text}\n[agents.new]\nrun = "nowhere:new"\n')
    assert [(card.name, card.callees) for card in draft.change.cards] == [("shop", frozenset())]


async def test_an_invalid_draft_names_its_lines_and_opens_no_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    (tmp_path / "secret.json").write_text("confidential", encoding="utf-8")
    text = file.read_text(encoding="utf-8")
    draft = text.replace("max_depth = 3", 'max_deep = 3\nmax_fan_out = "many"')
    draft = draft.replace("tokens = 500", 'tokens = 500\ninput_schema = "secret.json"')
    async with served(file) as ops:
        why = (await explained(ops, 400, draft=draft))["fault"]
        assert {each["path"] for each in why["problems"]} == {
            "remit.toml:17 limits.max_deep",
            "remit.toml:18 limits.max_fan_out",
        }
        why = (await explained(ops, 400, draft="[limits\n"))["fault"]
        assert why["problems"][0]["path"] == "remit.toml:1"
        sound = text.replace("tokens = 500", 'tokens = 500\ninput_schema = "secret.json"')
        assert "confidential" not in str(await explained(ops, draft=sound))


async def waiting(ops: ClientSession) -> Any:
    return (await got(ops, "/v1/approvals"))["waiting"]


async def test_the_rule_that_asks_is_named_with_its_line(tmp_path: Path) -> None:
    async with served(written(tmp_path)) as ops:
        async with ops.post("/v1/delegations", json={"target": "shop", "user": "anna", "objective": "x"}) as reply:
            assert reply.status == 202
        (item,) = await eventually(partial(waiting, ops), "a question")
        assert item["rule"] == {"number": 2, "then": "ask", "file": "remit.toml", "line": 23}
        no = {"agree": False, "digest": item["digest"], "reason": "not today"}
        async with ops.post(f"/v1/approvals/{item['id']}", json=no) as reply:
            assert reply.status == 200
        async with ops.get(f"/v1/delegations/{item['run']}/events") as reply:
            await reply.read()
        detail = await got(ops, f"/v1/runs/{item['run']}/delegations/{item['delegation']}")
        assert (detail["state"], detail["response"]["fault"]["code"]) == ("refused", "APPROVAL_DECLINED")
        assert [(each["key"], each["line"]) for each in detail["advice"]] == [
            ("rules[1]", 23),
            ("approvals.allow", None),
        ]
        (rule,) = [each for each in detail["verdicts"] if each["guard"] == "team_rules"]
        assert rule["verdict"] == "refuse"


async def test_the_team_shows_its_limits_and_its_file_without_secrets(tmp_path: Path) -> None:
    async with served(written(tmp_path)) as ops:
        team = await got(ops, "/v1/team")
    assert (team["limits"]["max_depth"], team["limits"]["max_fan_out"]) == (3, 3)
    agents = {each["name"]: each for each in team["agents"]}
    assert agents["shop"]["may_call"] == ["cashier"]
    assert (agents["cashier"]["rate"], agents["cashier"]["capabilities"]) == ({"calls": 5, "seconds": 60.0}, ["PAY"])
    assert "max_depth = 3" in team["file"]["text"]
    assert "sk-proj-" not in team["file"]["text"]


# ── the table ─────────────────────────────────────────────────────────────────────────────────────────────────────────

WORDS = {
    Code.PERMISSION_DENIED: "shop may not call cashier: its `may_call` does not name it",
    Code.RESULT_VALIDATION_FAILED: "the answer has 2000000 bytes",
}
# What no setting of a team decides: the route or content of one request, code that fails, and people who cancel.
UNGOVERNED = {
    *(Code.LOOP_DETECTED, Code.NESTED_CALLS_FORBIDDEN, Code.NOT_FOUND, Code.VERSION_UNSUPPORTED),
    *(Code.MALFORMED_ENVELOPE, Code.TOO_LARGE, Code.UNSUPPORTED_MEDIA_TYPE, Code.DUPLICATE_REQUEST),
    *(Code.STATE_CONFLICT, Code.USER_HAS_OPEN_RUN, Code.DELEGATION_FAILED, Code.CANCELLED),
    *(Code.OUTCOME_UNKNOWN, Code.NOT_RECORDED, Code.TEAM_INVALID),
}


def test_every_code_of_the_table_of_errors_has_its_row() -> None:
    assert GOVERNED.keys() == TABLE.keys()
    assert {code for code, governs in GOVERNED.items() if governs is None} == UNGOVERNED


@pytest.mark.parametrize("code", sorted(set(Code) - UNGOVERNED))
def test_each_refusal_that_a_setting_governs_names_a_key_of_the_file(tmp_path: Path, code: Code) -> None:
    team = load_team(written(tmp_path), code=False)
    request = Request(
        version="1.0",
        id="r.1",
        origin="shop",
        target="cashier",
        capability="PAY",
        run="r",
        parent="r",
        remit=Remit(user="anna", depth=1, max_depth=3, time_ms=1_000, tokens=100),
    )
    keys = governing_keys(RefusedCase(fault(code, WORDS.get(code, "too much")), request, team))
    assert keys
    assert all(each.says.endswith(".") for each in keys)
    named = {key.place[0] for key in keys}
    assert named <= set(team.__struct_fields__)


@pytest.mark.parametrize(
    ("code", "message", "keys"),
    [
        (
            Code.MAX_DELEGATIONS_EXCEEDED,
            "shop has asked (`max_agent_delegations`)",
            ["limits", "max_agent_delegations"],
        ),
        (Code.MAX_DELEGATIONS_EXCEEDED, "this run has asked (`max_delegations`)", ["limits", "max_delegations"]),
        (Code.TOOL_NOT_ALLOWED, "shop cannot pass on tool x", ["agents", "shop", "tools"]),
        (Code.TOOL_NOT_ALLOWED, "cashier works with the authority of its caller", ["agents", "cashier", "authority"]),
        (Code.TOKEN_BUDGET_EXCEEDED, "no tokens are left", ["capabilities", "PAY", "tokens"]),
        (Code.TIMEOUT, "only 3 ms are left", ["agents", "cashier", "time"]),
    ],
)
def test_the_key_that_most_likely_decided_comes_first(
    tmp_path: Path, code: Code, message: str, keys: list[str]
) -> None:
    team = load_team(written(tmp_path), code=False)
    remit = Remit(user="anna", depth=1, max_depth=3, time_ms=1_000, tokens=100)
    request = Request(
        version="1.0", id="r.1", origin="shop", target="cashier", capability="PAY", run="r", parent="r", remit=remit
    )
    first, *_ = governing_keys(RefusedCase(fault(code, message), request, team))
    assert list(first.place) == keys


def test_a_refused_root_is_advised_by_its_own_budgets(tmp_path: Path) -> None:
    team = load_team(written(tmp_path, dedent(TEAM)), code=False)
    remit = Remit(user="anna", depth=0, max_depth=3, time_ms=1_000, tokens=100)
    request = Request(version="1.0", id="r", origin="user", target="nobody", run="r", remit=remit)
    by_day = governing_keys(RefusedCase(fault(Code.TOKEN_BUDGET_EXCEEDED, "the tokens of a day"), request, team))
    assert [each.place for each in by_day] == [("budgets", "per_user_per_day")]
    unknown = governing_keys(RefusedCase(fault(Code.CAPABILITY_NOT_FOUND, "x"), request, team))
    assert [each.place for each in unknown] == [("capabilities",)]
