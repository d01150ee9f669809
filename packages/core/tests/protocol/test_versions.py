"""The current version is written; it and the two before it are read.

Nothing precedes 1.0 yet, so the versions here are made up: 1.1 renamed `goal` to `objective`, 1.2 moved `priority`
into the remit, and 1.3 renamed `tags` to `hints`.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from remit.protocol.codec import VERSIONS, Versions, VersionStep, decode_request, encode, encode_for
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.generous import decode_response
from remit.protocol.remit import Priority
from samples import a_remit, a_request, a_response
from strategies import requests

Plain = dict[str, Any]


def renamed(value: Plain, old: str, new: str) -> Plain:
    return {new if key == old else key: each for key, each in value.items()}


def priority_into_remit(value: Plain) -> Plain:
    rest = {key: each for key, each in value.items() if key != "priority"}
    return rest | {"remit": value["remit"] | {"priority": value["priority"]}} if "priority" in value else rest


def priority_out_of_remit(value: Plain) -> Plain:
    remit = dict(value.get("remit", {}))
    moved = {"priority": remit.pop("priority")} if "priority" in remit else {}
    return value | ({"remit": remit} if "remit" in value else {}) | moved


STEP_1 = VersionStep(
    version="1.1",
    upgrade=lambda value: renamed(value, "goal", "objective"),
    downgrade=lambda value: renamed(value, "objective", "goal"),
)
STEP_2 = VersionStep(version="1.2", upgrade=priority_into_remit, downgrade=priority_out_of_remit)
STEP_3 = VersionStep(
    version="1.3",
    upgrade=lambda value: renamed(value, "tags", "hints"),
    downgrade=lambda value: renamed(value, "hints", "tags"),
)
LATER = VERSIONS.then(STEP_1).then(STEP_2)
LATEST = LATER.then(STEP_3)

CURRENT = a_request(version="1.3", hints=("tax",), remit=a_remit(priority=Priority.HIGH))
REMIT: Plain = msgspec.to_builtins(CURRENT.remit)
CALM: Plain = {key: value for key, value in REMIT.items() if key != "priority"}
COMMON: Plain = {"id": "r-1", "origin": "prime", "target": "tag", "run": "run-1"}

WRITTEN: dict[str, Plain] = {
    "1.0": COMMON | {"version": "1.0", "goal": "Categorize", "tags": ["tax"], "remit": CALM, "priority": "HIGH"},
    "1.1": COMMON | {"version": "1.1", "objective": "Categorize", "tags": ["tax"], "remit": CALM, "priority": "HIGH"},
    "1.2": COMMON | {"version": "1.2", "objective": "Categorize", "tags": ["tax"], "remit": REMIT},
    "1.3": COMMON | {"version": "1.3", "objective": "Categorize", "hints": ["tax"], "remit": REMIT},
}


def test_today_one_version_is_spoken() -> None:
    assert (VERSIONS.current, VERSIONS.readable) == ("1.0", ("1.0",))


def test_a_new_version_becomes_the_current_one_and_leaves_the_older_list_as_it_was() -> None:
    """X14: the two versions before the current one are still accepted."""
    assert (LATER.current, LATER.readable) == ("1.2", ("1.0", "1.1", "1.2"))
    assert (LATEST.current, LATEST.readable) == ("1.3", ("1.1", "1.2", "1.3"))
    assert Versions("1.0") == VERSIONS


@pytest.mark.parametrize("version", ["1.1", "1.2", "1.3"])
def test_the_current_version_and_the_two_before_it_are_read_as_the_current_one(version: str) -> None:
    """X14: what an older peer writes is understood."""
    assert decode_request(encode(WRITTEN[version]), LATEST) == CURRENT


def test_the_third_version_before_the_current_one_is_refused_with_those_that_are_read() -> None:
    """X14: two versions back, and no further."""
    with pytest.raises(RemitError) as raised:
        decode_request(encode(WRITTEN["1.0"]), LATEST)
    assert raised.value.fault == fault(
        Code.VERSION_UNSUPPORTED, "version '1.0' is not supported; supported: 1.1, 1.2, 1.3"
    )


def test_that_version_was_read_as_long_as_it_was_the_second_before_the_current_one() -> None:
    """X14: backward compatibility for two versions."""
    older = {**WRITTEN["1.0"], "hints": WRITTEN["1.0"]["tags"]}
    del older["tags"]
    assert decode_request(encode(older), LATER) == replace(CURRENT, version="1.2")


@pytest.mark.parametrize("version", ["1.1", "1.2", "1.3"])
def test_an_envelope_for_an_older_peer_is_written_as_that_peer_writes_it(version: str) -> None:
    """X14: downgrade for an older peer."""
    assert encode_for(CURRENT, version, LATEST) == encode(WRITTEN[version])


@given(requests)
def test_what_is_written_for_an_older_peer_loses_nothing(request: Request) -> None:
    """X14: there and back."""
    latest = replace(request, version="1.3")
    assert [decode_request(encode_for(latest, each, LATEST), LATEST) for each in LATEST.readable] == [latest] * 3


def test_a_response_is_translated_like_a_request() -> None:
    """X14: both envelopes have a version."""
    response = a_response(version="1.3")
    raw = encode_for(response, "1.1", LATEST)
    assert msgspec.json.decode(raw)["version"] == "1.1"
    assert decode_response(raw, LATEST) == response


def test_an_envelope_for_this_very_version_says_what_it_says_anyway() -> None:
    assert decode_request(encode_for(a_request(), "1.0")) == a_request()


@pytest.mark.parametrize("version", ["0.9", "1.0", "", "1.4"])
def test_nothing_is_written_for_a_peer_whose_version_is_not_spoken(version: str) -> None:
    """X14: a peer that is too old, or too new, is told which versions there are."""
    with pytest.raises(RemitError) as raised:
        encode_for(CURRENT, version, LATEST)
    assert raised.value.fault == fault(
        Code.VERSION_UNSUPPORTED, f"version {version!r} is not supported; supported: 1.1, 1.2, 1.3"
    )


def test_an_older_envelope_is_checked_as_strictly_as_a_current_one() -> None:
    with pytest.raises(RemitError) as raised:
        decode_request(encode(WRITTEN["1.1"] | {"goal": "Categorize"}), LATEST)
    assert [problem.path for problem in raised.value.fault.problems] == ["$.goal"]
