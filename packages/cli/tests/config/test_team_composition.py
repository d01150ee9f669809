"""A hub from a team file: it runs, and it takes over what can change while it runs."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from remit import Code, Hub, RemitError, Status
from remit.ports import Decision, Question
from remit_cli.config.composition import Reloaded, hub_of, reload
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from waiting import PATIENCE_S, eventually

OFFICE = """\
    [store]
    path = "hub.db"
    durability = "process"

    [agents.prime]
    run = "office:prime"
    may_call = ["tag-ai"]

    [agents.tag-ai]
    run = "office:tag"
    """

ASKING = OFFICE + '\n    [[rules]]\n    then = "ask"\n    from = "prime"\n    to = "tag-ai"\n'


def load(folder: Path, text: str = OFFICE, *, overrides: Sequence[str] = (), environ: Mapping[str, str] = {}) -> Team:
    file = folder / "remit.toml"
    file.write_text(dedent(text), encoding="utf-8")
    return load_team(file, overrides=overrides, environ=environ)


async def answer_of(hub: Hub, text: str = "receipts") -> Any:
    async with hub:
        return (await hub.ask("prime", text, user="u-1")).unwrap()


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_team_from_a_file_answers(folder: Path) -> None:
    assert await answer_of(hub_of(load(folder))) == "3 categories for receipts"
    assert (folder / "hub.db").is_file()


async def test_an_agent_of_the_file_runs_in_a_process_of_its_own(folder: Path) -> None:
    hub = hub_of(load(folder, overrides=["agents.tag-ai.isolation=process"]))
    assert await answer_of(hub) == "3 categories for receipts"


async def test_an_agent_is_registered_with_everything_that_is_said_of_it(folder: Path) -> None:
    text = """
        [agents.tag-ai]
        run = "office:tag"
        prompt = "Tag."
        version = "2.0"
        capabilities = ["TAG"]
        tools = ["count"]
        may_call = ["*"]
        allow_sub_agent_calls = false
        max_sub_agent_depth = 1
        concurrency = 2
        queue = 3
        rate = { calls = 4, seconds = 5 }
        time = "6s"
        tokens = 7
        resumable = true
        sees = ["IBAN"]
        [capabilities.TAG]
        version = "3.0"
        description = "Tags."
        time = "500ms"
        tokens = 9
        read_only = true
        examples = ["Tag this"]
        sees = ["EMAIL"]
        sees_fields = ["to"]
        [tools.count]
        run = "office:count"
        description = "Counts."
        safe_to_repeat = true
        """
    hub = hub_of(load(folder, text), store=folder / "other.db")
    [card] = hub.cards.values()
    assert (card.name, card.description, card.prompt, card.version) == ("tag-ai", "Tag receipts.", "Tag.", "2.0")
    assert (card.tools, card.may_call, card.allow_sub_agent_calls) == ({"count"}, {"*"}, False)
    assert (card.max_sub_agent_depth, card.concurrency, card.queue) == (1, 2, 3)
    assert card.rate is not None
    assert (card.rate.calls, card.rate.seconds, card.time_ms, card.tokens) == (4, 5, 6_000, 7)
    assert (card.resumable, card.isolation, card.sees) == (True, "task", {"IBAN"})
    [capability] = card.capabilities
    assert (capability.code, capability.version, capability.description) == ("TAG", "3.0", "Tags.")
    assert (capability.time_ms, capability.tokens, capability.read_only) == (500, 9, True)
    assert (capability.examples, capability.sees, capability.sees_fields) == (("Tag this",), {"EMAIL"}, {"to"})


async def test_limits_and_rules_of_the_file_hold(folder: Path) -> None:
    assert await answer_of(hub_of(load(folder, overrides=["limits.max_depth=0"]))) == Code.MAX_DEPTH_EXCEEDED
    assert (
        await answer_of(hub_of(load(folder, overrides=['rules=[{then="refuse",to="tag*"}]']))) == Code.PERMISSION_DENIED
    )


def test_code_that_is_gone_since_the_file_was_read_is_named(folder: Path) -> None:
    file = folder / "remit.toml"
    file.write_text('[agents.a]\nrun = "gone:a"', encoding="utf-8")
    with pytest.raises(RemitError, match="there is no module `gone`"):
        hub_of(load_team(file, code=False))


# ── approvals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_on_the_allow_list_needs_no_person(folder: Path) -> None:
    hub = hub_of(load(folder, ASKING, overrides=['approvals={allow=["prime -> tag-*"],otherwise="deny"}']))
    assert await answer_of(hub) == "3 categories for receipts"


async def test_a_team_that_denies_asks_nobody(folder: Path) -> None:
    hub = hub_of(load(folder, ASKING, overrides=["approvals.otherwise=deny"]))
    assert await answer_of(hub) == Code.APPROVAL_DECLINED


async def test_whoever_sits_at_the_terminal_is_asked_there(folder: Path) -> None:
    questions: list[str] = []

    async def person(question: Question) -> bool:
        questions.append(question.text)
        return True

    hub = hub_of(load(folder, ASKING, overrides=["approvals.otherwise=terminal"]), approver=person)
    assert await answer_of(hub) == "3 categories for receipts"
    assert questions == ["May prime ask tag-ai?"]


@pytest.mark.parametrize("otherwise", ["inbox", "terminal"])
async def test_where_there_is_no_terminal_the_question_waits_in_the_inbox(folder: Path, otherwise: str) -> None:
    hub = hub_of(load(folder, ASKING, overrides=[f"approvals.otherwise={otherwise}"]))
    async with hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        run = group.create_task(hub.ask("prime", "receipts", user="u-1"))
        pending = await eventually(hub.pending)
        await hub.store.decide(pending[0].id, Decision(agreed=True, by="boss"))
        assert (await run).result == "3 categories for receipts"


# ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SPYING = """
seen = []

def tag(brief):
    seen.append(brief.input)
    return "done"

def words(text):
    from remit.policy.verdict import Finding
    at = text.find("codeword")
    return [Finding(at, at + 8, "WORD")] if at >= 0 else []
"""


@pytest.mark.parametrize(
    ("overrides", "shown"),
    [
        ((), "[EMAIL:"),
        (("redaction.enabled=false",), "ann@example.com ST-123456 codeword"),
        (('redaction={kinds=["IBAN"],patterns={STAFF="ST-[0-9]{6}"}}',), "ann@example.com [STAFF:"),
        (('redaction={kinds=[],detectors=["spies:words"]}',), "ann@example.com ST-123456 [WORD:"),
        (('redaction={kinds=["EMAIL"],regions=["DE"]}', 'agents.spy.sees=["EMAIL"]'), "ann@example.com ST-123456"),
    ],
)
async def test_agents_see_what_the_team_lets_them(folder: Path, overrides: Sequence[str], shown: str) -> None:
    (folder / "spies.py").write_text(SPYING, encoding="utf-8")
    text = '[store]\npath = "hub.db"\ndurability = "process"\n[agents.spy]\nrun = "spies:tag"'
    async with hub_of(load(folder, text, overrides=overrides)) as hub:
        await hub.ask("spy", "Look", user="u-1", input="ann@example.com ST-123456 codeword")
    from spies import seen  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    assert str(seen[0]).startswith(shown)  # pyright: ignore[reportUnknownArgumentType]


async def test_the_key_of_the_vault_comes_from_the_environment(folder: Path) -> None:
    environ = {"VAULT": "7f" * 32}
    team = load(folder, OFFICE + '\n    [redaction]\n    key = "$VAULT"\n', environ=environ)
    assert "7f7f" not in repr(team)
    assert await answer_of(hub_of(team, environ=environ)) == "3 categories for receipts"
    with pytest.raises(RemitError, match="the environment variable VAULT is not set"):
        hub_of(team, environ={})


# ── reloading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_changed_team_is_taken_over_as_far_as_it_can_be(folder: Path) -> None:
    old = load(folder)
    async with hub_of(old) as hub:
        assert (await hub.ask("prime", "a", user="u-1")).result == "3 categories for a"
        new = load(
            folder,
            OFFICE + '\n    [agents.new]\n    run = "office:tag"\n',
            overrides=[
                "limits.max_depth=0",
                "budgets.run_time=1m",
                "breaker.open=1s",
                "approvals.timeout=1s",
                "approvals.otherwise=deny",
                'agents.prime.may_call=["new"]',
                "agents.prime.prompt=Hello",
                "agents.tag-ai.time=1s",
                "agents.tag-ai.queue=1",
                "name=other",
                "store.path=other.db",
                'rules=[{then="ask"}]',
                'redaction.patterns.A="a+"',
            ],
        )
        done = reload(hub, old, new)
        assert done.applied == (
            "limits.max_depth",
            "budgets.run_time",
            "breaker.open",
            "agents.prime.may_call",
            "agents.tag-ai.time",
            "rules",
            "approvals.timeout",
        )
        assert done.needs_restart == (
            "name",
            "store.path",
            "agents.prime.prompt",
            "agents.prime.may_call",
            "agents.tag-ai.queue",
            "agents.new",
            "approvals.otherwise",
            "redaction.patterns",
        )
        assert hub.cards["prime"].may_call == frozenset()
        assert hub.cards["tag-ai"].time_ms == 1_000
        again = reload(hub, done.team, new)
        assert (again.applied, again.needs_restart) == ((), done.needs_restart)


async def test_an_agent_that_left_the_file_stays_until_the_restart(folder: Path) -> None:
    old = load(folder)
    async with hub_of(old) as hub:
        new = load(folder, '[store]\npath = "hub.db"\ndurability = "process"\n[agents.tag-ai]\nrun = "office:tag"')
        assert reload(hub, old, new) == Reloaded(applied=(), needs_restart=("agents.prime",), team=old)
        assert (await hub.ask("prime", "a", user="u-1")).result == "3 categories for a"


SLOW = """
import asyncio
started, go_on = asyncio.Event(), asyncio.Event()

async def slow(brief):
    started.set()
    await go_on.wait()
    reply = await brief.delegate("tag-ai", objective="Tag", input=brief.input)
    return reply.result if reply.fault is None else reply.fault.code
"""


async def test_a_run_in_flight_goes_on_while_the_team_changes(folder: Path) -> None:
    (folder / "slow_office.py").write_text(SLOW, encoding="utf-8")
    old = load(folder, overrides=["agents.prime.run=slow_office:slow"])
    async with hub_of(old) as hub, asyncio.timeout(PATIENCE_S):
        import slow_office  # pyright: ignore[reportMissingImports]

        async with asyncio.TaskGroup() as group:
            run = group.create_task(hub.ask("prime", "a", user="u-1"))
            await slow_office.started.wait()  # pyright: ignore
            reloaded = reload(
                hub, old, load(folder, overrides=["agents.prime.run=slow_office:slow", "agents.prime.may_call=[]"])
            )
            assert reloaded.applied == ("agents.prime.may_call",)
            slow_office.go_on.set()  # pyright: ignore
        # It goes on, and what it asks for now is judged by what holds now.
        assert run.result().status is Status.SUCCESS
        assert run.result().result == Code.PERMISSION_DENIED
        assert (await hub.ask("prime", "b", user="u-1")).result == Code.PERMISSION_DENIED
