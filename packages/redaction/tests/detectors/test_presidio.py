"""Presidio as a detector: its findings under our names, or a sentence that says how to install it."""

import re
from importlib.util import find_spec

import pytest

from remit.installed import install_command
from remit.policy.verdict import Finding
from remit.protocol.errors import Code, RemitError
from remit_redaction.presidio import presidio_detector

INSTALLED = find_spec("presidio_analyzer") is not None
TEXT = "Write to ada@example.org from 198.51.100.7"


# What the package imports warns of its own future.
@pytest.mark.filterwarnings("ignore")
def test_presidio_finds_under_our_names_for_kinds_or_says_how_to_install_it() -> None:
    if INSTALLED:
        detect = presidio_detector(entities=["EMAIL_ADDRESS", "IP_ADDRESS"])
        assert sorted(finding[:3] for finding in detect(TEXT)) == [(9, 24, "EMAIL"), (30, 42, "IP")]
    else:
        with pytest.raises(RemitError, match=re.escape(install_command("presidio"))) as raised:
            presidio_detector()
        assert raised.value.fault.code is Code.TEAM_INVALID


@pytest.mark.filterwarnings("ignore")
def test_an_entity_that_presidio_does_not_know_is_the_teams_mistake() -> None:
    with pytest.raises(RemitError, match="NO_SUCH_THING" if INSTALLED else "presidio") as raised:
        presidio_detector(entities=["NO_SUCH_THING"])
    assert raised.value.fault.code is Code.TEAM_INVALID


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_the_users_own_finds_names_too() -> None:
    if not INSTALLED:
        with pytest.raises(RemitError):
            presidio_detector(nlp=object())
        return
    detect = presidio_detector(entities=["PERSON"], nlp=knows_ada())
    assert [*detect("Ask Ada Lovelace")] == [Finding(4, 16, "PERSON", 0.85)]


def knows_ada() -> object:
    """A model that knows one person, without a download."""
    import spacy  # pyright: ignore[reportMissingImports]
    from presidio_analyzer.nlp_engine import SpacyNlpEngine  # pyright: ignore

    model = spacy.blank("en")  # pyright: ignore
    model.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Ada Lovelace"}])  # pyright: ignore
    engine = SpacyNlpEngine()  # pyright: ignore
    engine.nlp = {"en": model}  # pyright: ignore
    return engine  # pyright: ignore
