"""Tokens are counted exactly where that is installed, else estimated; nothing is loaded before it is needed."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.agents import token_count
from remit.agents.token_count import token_counter
from remit.installed import install_command
from remit.policy.budget import estimate
from remit.protocol.errors import Code, RemitError
from waiting import PATIENCE_S

ENCODINGS = ("o200k_base", "cl100k_base")
exact = token_counter("o200k_base")


def nothing(_: str) -> None:
    """Find no package at all."""


class Tokenizer:
    """Takes each character for a token, and notes how often it was loaded."""

    loaded = 0

    @classmethod
    def from_pretrained(cls, encoding: str) -> "Tokenizer":
        cls.loaded += 1
        return cls()

    def encode_ordinary(self, text: str) -> list[int]:
        return [0] * len(text)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module in the place of the tokenizer's, not loaded yet."""
    module = ModuleType("splintr")
    monkeypatch.setitem(sys.modules, "splintr", module)
    monkeypatch.setattr(token_count, "_encoders", {})
    monkeypatch.setattr(token_count, "find_spec", str)
    return module


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    # Published with tiktoken, and counted with it.
    [
        ("", 0, 0),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 8, 9),
    ],
)
def test_texts_are_counted_as_the_models_do(text: str, o200k: int, cl100k: int) -> None:
    """X7: real use is metered."""
    assert [token_counter(name)(text) for name in ENCODINGS] == [o200k, cl100k]
    assert token_counter()(text) == o200k


def test_without_the_extra_tokens_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_count, "find_spec", nothing)
    assert token_counter() is estimate
    assert token_counter("estimate") is estimate


@pytest.mark.parametrize("name", ENCODINGS)
def test_an_encoding_that_is_not_installed_is_refused_with_the_command_that_installs_it(
    name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_count, "find_spec", nothing)
    with pytest.raises(RemitError, match=re.escape(install_command("tokens"))) as caught:
        token_counter(name)
    assert caught.value.fault.code is Code.TEAM_INVALID


def test_what_looks_like_a_special_token_is_text() -> None:
    assert exact("<|endoftext|>") == 7
    assert exact("a<|endoftext|>b") == 9


def test_halves_of_characters_are_counted_as_what_they_are_taken_for() -> None:
    assert exact("\ud800x") == exact("\ufffdx")
    assert exact("\ud83d\ude00") == exact("😀")


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text_can_be_counted(text: str) -> None:
    assert 0 <= exact(text) <= 4 * len(text)


@given(
    st.lists(st.sampled_from(["a", " b", " ", "\n", "word", " word", "1", "é", "中", "."]), max_size=60).map("".join)
)
def test_a_long_text_is_counted_in_pieces_to_the_same_sum(text: str) -> None:
    whole = exact(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_count, "_PIECE", 5)
        assert exact(text) == whole


def test_the_tokenizer_is_loaded_with_the_first_count_and_once_for_all(fake: Any) -> None:
    fake.Tokenizer = Tokenizer
    Tokenizer.loaded = 0
    counters = [token_counter() for _ in range(16)]
    assert Tokenizer.loaded == 0
    with ThreadPoolExecutor(16) as threads:
        assert [count.result() for count in [threads.submit(count, "abc") for count in counters]] == [3] * 16
    assert Tokenizer.loaded == 1


def test_another_package_of_that_name_is_no_tokenizer(fake: Any, caplog: pytest.LogCaptureFixture) -> None:
    count = token_counter()
    assert [count("Some text"), count("more")] == [estimate("Some text"), estimate("more")]
    assert caplog.messages == [f"tokens are estimated, because the tokenizer cannot be loaded: {error_of(fake)}"]
    with pytest.raises(RemitError, match=re.escape(install_command("tokens"))):
        token_counter("cl100k_base")("Some text")


def error_of(module: ModuleType) -> str:
    try:
        module.Tokenizer  # noqa: B018
    except AttributeError as error:
        return str(error)
    raise AssertionError


@pytest.mark.processes
def test_neither_the_package_nor_an_open_hub_loads_a_tokenizer_or_a_model_library() -> None:
    program = """
import asyncio, sys, tempfile
from pathlib import Path
import remit

async def main():
    with tempfile.TemporaryDirectory() as folder:
        async with remit.Hub(store=Path(folder) / "hub.db"):
            print(sorted({"splintr", "tiktoken", "pydantic_ai", "openai", "httpx2", "pydantic"} & set(sys.modules)))

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
