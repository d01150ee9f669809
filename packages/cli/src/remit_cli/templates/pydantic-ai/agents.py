"""The agents of this team: one of pydantic-ai, and one that is a plain function."""

from pydantic_ai import Agent

from remit import Brief

# The model is looked up when it is needed, so that this file can be read without a key.
shop = Agent(
    "openai-chat:gpt-5-mini",
    instructions="You run a tea shop. Answer in one sentence, and never guess a price.",
    defer_model_check=True,
)

PRICES = {"sencha": 4.2, "assam": 3.1, "matcha": 19.0}


@shop.tool_plain
def price(tea: str) -> float | None:
    """Look up what a hundred grams of a tea cost, in euros."""
    return PRICES.get(tea.lower())


async def stock(brief: Brief) -> str:
    """Say how much of a tea there is."""
    return "20 tins" if any(tea in brief.text.lower() for tea in PRICES) else "none"
