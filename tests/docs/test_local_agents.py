"""What the page about local agents shows is what is spoken."""

import re
from pathlib import Path

import msgspec
import pytest

from doc_pages import page_text
from remit_relay.bridge.ports import PromptRequest, PromptResponse

ROOT = Path(__file__).resolve().parents[2]
PAGE = page_text("local-agents")


@pytest.mark.parametrize("kind", [PromptRequest, PromptResponse])
def test_a_frame_on_the_page_is_one_and_shows_every_field(kind: type[PromptRequest | PromptResponse]) -> None:
    name = kind.__struct_config__.tag
    (shown,) = (each for each in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL) if f'"type": "{name}"' in each)
    frame = msgspec.json.decode(shown, type=kind, strict=True)
    fields = msgspec.json.decode(shown, type=dict[str, object])
    assert set(fields) == {"type", *kind.__struct_fields__}
    assert msgspec.json.decode(msgspec.json.encode(frame), type=kind) == frame


def test_the_agent_on_the_page_is_that_of_the_examples() -> None:
    example = (ROOT / "examples" / "relay" / "agent.py").read_text(encoding="utf-8")
    assert f"```python agent.py\n{example}```" in PAGE
