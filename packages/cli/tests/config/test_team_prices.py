"""Prices of models in a team file: said, checked, and what is estimated by them."""

import random
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from openai_server import Answer as ServerAnswer
from openai_server import OpenAIServer, calls, say
from openai_server import Request as ServerRequest
from remit import RemitError, Request
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team, warnings_about
from remit_cli.config.serving import pricing_of
from remit_cli.config.team import Team
from remit_server.documents.figures import SumKey
from remit_server.model_prices import Price

TEAM = """\
    currency = "EUR"

    [agents.clerk]
    model = "openai:gpt-5-mini"

    [agents.writer]
    run = "office:writer"
    priced_as = "openai:gpt-5-nano"

    [orchestrator]
    name = "desk"
    model = "anthropic:opus"
    narrate = "model"

    """


def load(folder: Path, text: str) -> Team:
    (folder / "remit.toml").write_text(dedent(text), encoding="utf-8")
    return load_team(folder / "remit.toml", environ={"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x"}, code=False)


def test_a_team_has_prices_in_its_currency_and_its_agents_have_models(folder: Path) -> None:
    prices = """\
        [prices."openai:gpt-5-mini"]
        input = 0.25
        output = 2
        cached = 0.025
        cache_write = 0.3

        [prices.opus]
        input = 5
        output = 25
        """
    pricing = pricing_of(load(folder, dedent(TEAM) + dedent(prices)))
    assert pricing.currency == "EUR"
    assert pricing.models == {"clerk": "openai:gpt-5-mini", "writer": "openai:gpt-5-nano", "desk": "anthropic:opus"}
    assert pricing.price("openai:gpt-5-mini") == Price(input=0.25, output=2, cached=0.025, cache_write=0.3)
    assert pricing.price("anthropic:opus") == Price(input=5, output=25)
    assert pricing.price("openai:gpt-5") is None, "the package has it in dollars"
    assert pricing.model_of(SumKey("anna", "clerk", "", "", "clerk", "")) == "openai:gpt-5-mini"
    assert pricing.model_of(SumKey("anna", "clerk", "", "recorded", "clerk", "")) == "recorded"
    assert pricing.model_of(SumKey("anna", "other", "", "", "clerk", "")) == ""


def test_a_price_for_a_model_that_is_nearly_one_of_the_teams_is_a_warning(folder: Path) -> None:
    prices = """\
        [prices."openai:gpt-5-mni"]
        input = 1
        output = 2

        [prices.gpt-5-mini]
        input = 1
        output = 2

        [prices.something-else]
        input = 1
        output = 2
        """
    warnings = [(each.place, each.message) for each in warnings_about(load(folder, dedent(TEAM) + dedent(prices)))]
    message = "no agent of the team has this model; did you mean `openai:gpt-5-mini`?"
    assert warnings == [(("prices", "openai:gpt-5-mni"), message)]


async def test_a_hub_of_a_team_records_what_its_agents_cost(folder: Path) -> None:
    (folder / "office.py").write_text(
        dedent("""
            from remit import Brief

            def writer(brief: Brief) -> str:
                brief.spend(prompt=1_000, completion=100, cache_read=400)
                brief.spend(prompt=10, model="unheard-of")
                return "written"
            """)
    )
    team = """\
        [agents.writer]
        run = "office:writer"
        priced_as = "acme:tiny"

        [prices."acme:tiny"]
        input = 2
        output = 10
        cached = 0.5
        """
    async with hub_of(load(folder, team)) as hub:
        response = await hub.ask("writer", "go", user="u")
    assert response.usage.cost == 1_200 + 1_000 + 200 + 20, "what has no price of its own has that of `priced_as`"
    assert response.usage.unpriced == 0


async def test_a_team_limits_the_money_of_runs_delegations_agents_and_steps(folder: Path) -> None:
    team = """\
        [budgets]
        run_cost = "5 USD"
        delegation_cost = "0.75 USD"
        cost_per_user_per_day = "20 USD"

        [agents.writer]
        run = "studio:writer"
        cost = "0.000001 USD"
        capabilities = ["WRITE"]

        [capabilities.WRITE]
        cost = "2 USD"

        [workflows.book]
        steps = [{ name = "one", agent = "writer", objective = "Write", cost = "1.5 USD" }]
        """
    (folder / "studio.py").write_text('def writer(_):\n    return "written"\n')
    loaded = load(folder, team)
    limits = loaded.settled_limits()
    assert (limits.root_cost, limits.delegation_cost, limits.currency) == (5_000_000, 750_000, "USD")
    assert limits.user_cost_per_day == 20_000_000
    async with hub_of(loaded) as hub:
        card = hub.cards["writer"]
        response = await hub.ask("book", "go", user="u")
        requests = [each.body for each in await hub.store.records(run=response.run) if isinstance(each.body, Request)]
    assert (card.cost, card.capabilities[0].cost) == (1, 2_000_000)
    assert [each.remit.cost for each in requests] == [5_000_000, 1_500_000]


def test_money_in_another_currency_than_the_teams_is_an_error_that_says_what_to_do(folder: Path) -> None:
    with pytest.raises(RemitError) as raised:
        load(folder, '[budgets]\nrun_cost = "5 EUR"\n\n[agents.a]\nmodel = "openai:gpt-5"\ncost = "a lot"\n')
    other, one = raised.value.fault.problems
    assert (one.path, other.path) == ("remit.toml:6 agents.a.cost", "remit.toml:2 budgets.run_cost")
    assert one.message == 'expected an amount with its currency, such as "0.50 USD"'
    assert other.message.endswith('write it in USD, or set `currency = "EUR"` and all prices in it')


LIMITED = """\
    [budgets]
    run_cost = "0.02 USD"

    [prices.scripted]
    input = 2
    output = 10

    [agents.boss]
    run = "office:boss"
    may_call = ["*"]

    [agents.clerk]
    model = "scripted"
    base_url = "{url}"
    max_tool_rounds = 100
    tools = ["look_at"]

    [agents.stranger]
    model = "unheard-of"
    base_url = "{url}"

    [tools.look_at]
    run = "office:look_at"
    safe_to_repeat = true
    """
OFFICE = """
    import asyncio

    from remit import Brief

    async def boss(brief: Brief):
        calls = (brief.delegate("clerk", objective=f"Look at room {room}", deadline_ms=280_000) for room in range(3))
        replies = await asyncio.gather(*calls)
        return [str(reply.status) for reply in replies]

    def look_at(shelf: int) -> str:
        return f"There is tea-{shelf}."
    """


async def test_money_is_exceeded_by_no_more_than_a_call_of_each_agent_and_nothing_is_free(folder: Path) -> None:
    """A server outside of the product counts what it was asked for, and reports far more tokens than its texts have."""
    draws, costs, names = random.Random(7), list[int](), Counter[str]()

    def reply(request: ServerRequest) -> ServerAnswer:
        prompt, completion = draws.randint(100, 2_000), 50
        costs.append(2 * prompt + 10 * completion)
        names[str(request.body["model"])] += 1
        if not request.tools:
            return say("There is tea.", usage=(prompt, completion))
        return calls(("look_at", {"shelf": len(costs)}), usage=(prompt, completion))

    (folder / "office.py").write_text(dedent(OFFICE))
    with OpenAIServer(reply) as server:
        async with hub_of(load(folder, LIMITED.format(url=server.base_url))) as hub:
            response = await hub.ask("boss", "go", user="u")
            assert 12_000 < response.usage.cost == sum(costs) <= 20_000 + 3 * max(costs)
            assert (response.usage.unpriced, names["scripted"]) == (0, len(costs))
            refused = await hub.ask("stranger", "go", user="u")
        assert refused.fault is not None
        assert (
            refused.fault.message
            == "the price of `openai-compatible:unheard-of` is not known, and stranger may spend 0.02 USD at most"
        )
        assert names["unheard-of"] == 0
        unlimited = dedent(LIMITED).replace('run_cost = "0.02 USD"', "")
        async with hub_of(load(folder, unlimited.format(url=server.base_url))) as hub:
            unpriced = await hub.ask("stranger", "go", user="u")
    assert (unpriced.usage.cost, unpriced.usage.unpriced > 0, names["unheard-of"]) == (0, True, 1)
