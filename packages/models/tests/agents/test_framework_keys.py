"""An agent of pydantic-ai whose model has no key says which variable is to be set."""

import pytest
from pydantic_ai import Agent

from remit import Code, Hub
from remit_testing.memory import MemoryStore


async def test_a_missing_key_is_a_matter_of_the_team_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not one of trying again, or of asking another agent."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    hub = Hub(store=MemoryStore())
    hub.add("shop", Agent("openai-chat:gpt-5-mini", defer_model_check=True))
    async with hub:
        response = await hub.ask("shop", "What does sencha cost?", user="u-1")
    assert response.fault is not None
    assert response.fault.code is Code.TEAM_INVALID
    assert response.fault.message == "the model `openai-chat:gpt-5-mini` needs a key"
    assert response.fault.suggestion == "Put it into the environment variable OPENAI_API_KEY."
