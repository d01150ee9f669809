"""`[relay]`, `[profiles.NAME]` and `[shared.NAME]` of a team file: what is wrong with them, and what they make."""

from pathlib import Path

import pytest
from msgspec import structs

from command_line import document
from remit import RemitError
from remit.protocol.card import Rate
from remit.protocol.errors import Code
from remit.runtime.schemas import misfits
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cli.config.team import Team, team_schema
from remit_relay.bridge.ports import PromptConstraints
from remit_relay.call_shared import DeviceAgent, RemoteCaller
from remit_relay.device.identity import Card, make_card
from remit_relay.device.peers import PeerDevice, Peers
from remit_relay.session.profile import Profile, ProfileLimits
from remit_relay.session.review import ReviewRules
from remit_relay.team.device import (
    DeviceWarning,
    create_device,
    device_path,
    device_warnings,
    find_device,
    open_device,
    program_of,
    using_device,
)
from remit_relay.team.device_service import profile_of, shared_of
from remit_relay.team.section import PROFILES, SHARED, SharedSection, gateway_name
from remit_server.transports.credentials.keys import Pair

RELAY = '[relay]\ngateway = "wss://relay.example.com"\n'
PROFILE = RELAY + '[profiles.mine]\nrun = ["agent"]\n'
AGENT = '[agents.helper]\nrun = "office:tag"\n'


def problems(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    """Return what is wrong with a team file, each with its place."""
    try:
        team(folder, text, environ)
    except RemitError as error:
        return [f"{each.path}: {each.message}" for each in error.fault.problems]
    return []


def team(folder: Path, text: str, environ: dict[str, str] | None = None) -> Team:
    file = folder / "remit.toml"
    file.write_text(text, encoding="utf-8")
    return load_team(file, environ=environ or {})


def card(name: str, number: int) -> Card:
    return make_card(Pair(bytes([number]) * 32), bytes([number]) * 32, name=name)


# ── what is wrong ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_schema_for_editors_knows_the_sections(folder: Path) -> None:
    tables = {
        "relay": {"gateway": "wss://relay.example.com"},
        "profiles": {"mine": {"run": ["agent"], "mode": "full_auto", "rate": {"calls": 3, "seconds": 1}}},
        "shared": {"helper": {"devices": ["bob"]}},
    }
    assert misfits(team_schema(), tables) == ()
    assert misfits(team_schema(), {**tables, "profiles": {"mine": {"run": ["x"], "acp": ["y"]}}})
    assert misfits(team_schema(), {**tables, "profiles": {"mine": {"run": ["x"], "mode": "auto"}}})


def test_a_variable_overrides_what_a_profile_says(folder: Path) -> None:
    loaded = team(folder, PROFILE, {"REMIT_PROFILES__MINE__LIMITS__MAX_TURNS": "3"})
    assert PROFILES.of(loaded)["mine"].limits.max_turns == 3


# ── what it makes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_profile_that_says_nothing_is_the_default_one_and_allows_nothing(folder: Path) -> None:
    """S6, S7, S10: the defaults of the document; deny until enabled."""
    made = profile_of(team(folder, PROFILE), "mine", [])
    assert made == Profile(id="mine")
    assert (made.allow_shared_agent_calls, made.allowed_shared_device_ids, made.mode) == (False, frozenset(), "manual")


def test_a_profile_is_what_its_section_says(folder: Path) -> None:
    text = PROFILE + (
        'allow_shared_agent_calls = true\ndevices = ["bob", "nobody"]\nmax_concurrent_shared_calls = 1\n'
        'max_hop_count = 0\nrate = { calls = 1, seconds = 2 }\nmode = "semi_auto"\n'
        '[profiles.mine.limits]\nmax_turns = 2\nmax_duration = "30s"\nmax_failures = 1\nmax_tokens = 500\n'
        '[profiles.mine.rules]\ndisabled = ["links"]\nmin_confidence = 0.5\nmax_chars = 100\nmin_shared_words = 0.2\n'
        "[profiles.mine.constraints]\nmax_output_chars = 10\nallow_tool_use = false\nmax_history_turns = 1\n"
        'max_history_chars = 20\nmax_tool_rounds = 0\nturn_timeout = "5s"\n'
    )
    bob = PeerDevice(card=card("bob", 1))
    assert profile_of(team(folder, text), "mine", [bob]) == Profile(
        id="mine",
        allow_shared_agent_calls=True,
        allowed_shared_device_ids=frozenset({bob.device}),
        max_concurrent_shared_calls=1,
        max_hop_count=0,
        rate=Rate(1, 2),
        mode="semi_auto",
        limits=ProfileLimits(max_turns=2, max_duration_ms=30_000, max_failures=1, max_tokens_budget=500),
        rules=ReviewRules(off=frozenset({"links"}), min_confidence=0.5, max_chars=100, min_shared_words=0.2),
        constraints=PromptConstraints(
            max_output_chars=10,
            allow_tool_use=False,
            max_history_turns=1,
            max_history_chars=20,
            max_tool_rounds=0,
            local_turn_timeout_ms=5_000,
        ),
    )


def test_devices_are_named_by_name_or_whole_id_and_a_revoked_one_is_not_meant(folder: Path) -> None:
    bob, anna = PeerDevice(card=card("bob", 1), allowed=True), PeerDevice(card=card("anna", 3), allowed=True)
    known = [bob, PeerDevice(card=card("bob", 2), revoked=True), anna]
    named = SharedSection(agent="helper", devices=frozenset({"bob", anna.device}))
    assert shared_of("h", named, known).profile.allowed_shared_device_ids == {bob.device, anna.device}
    part = SharedSection(agent="helper", devices=frozenset({anna.device[:12]}))
    assert shared_of("h", part, known).profile.allowed_shared_device_ids == frozenset()


def test_a_device_that_only_shares_with_this_one_may_not_ask_here(folder: Path) -> None:
    """S10: that it may be asked does not let it ask."""
    bob = PeerDevice(card=card("bob", 1), shared=True, verified=True)
    named = SharedSection(agent="helper", devices=frozenset({"bob"}))
    assert shared_of("h", named, [bob]).profile.allowed_shared_device_ids == frozenset()


def test_a_shared_agent_is_on_for_the_devices_that_it_names_and_no_other(folder: Path) -> None:
    """S10: deny by default."""
    loaded = team(folder, AGENT + RELAY + "[shared.helper]\n")
    made = shared_of("helper", SHARED.of(loaded)["helper"], [PeerDevice(card=card("bob", 1))])
    assert made.agent == "helper"
    assert made.profile == Profile(id="helper", allow_shared_agent_calls=True)


def test_an_agent_on_another_device_is_an_agent_of_the_hub_within_what_its_section_says(folder: Path) -> None:
    text = AGENT + RELAY + '[agents.away]\ndevice = "bob"\n[agents.far]\ndevice = "carl"\nremote = "api-expert"\n'
    text += 'description = "knows APIs"\nconcurrency = 7\nmax_hop_count = 4\nrate = { calls = 5, seconds = 1 }\n'
    hub = hub_of(team(folder, text))
    away, far = (each for each in hub.remotes.values() if isinstance(each, DeviceAgent))
    assert away.caller == RemoteCaller(agent="away", device="bob")
    own = Profile(id="-")
    assert (away.caller.max_hop_count, away.caller.max_concurrent_shared_calls, away.caller.rate) == (
        own.max_hop_count,
        own.max_concurrent_shared_calls,
        own.rate,
    )
    rate = Rate(calls=5, seconds=1)
    assert far.caller == RemoteCaller(
        agent="far", device="carl", remote="api-expert", max_concurrent_shared_calls=7, max_hop_count=4, rate=rate
    )
    card_ = hub.cards["far"]
    assert (card_.description, card_.concurrency, card_.rate) == ("knows APIs", 7, rate)
    assert hub.cards["away"].concurrency == own.max_concurrent_shared_calls
    assert away.access is far.access


def test_the_program_of_a_profile_gets_its_secrets_and_runs_in_the_teams_folder(folder: Path) -> None:
    text = RELAY + '[profiles.mine]\nacp = ["agent", "--acp"]\nenv = { A = "plain", KEY = "$AGENT_KEY" }\n'
    loaded = team(folder, text, {"AGENT_KEY": "s3cr3t-value"})
    made = program_of(loaded, "mine", {"AGENT_KEY": "s3cr3t-value"})
    assert (made.command, made.args, made.folder) == ("agent", ("--acp",), str(folder))
    assert made.env == {"A": "plain", "KEY": "s3cr3t-value"}
    with pytest.raises(RemitError) as raised:
        program_of(loaded, "mine", {})
    assert raised.value.fault.message == "the environment variable AGENT_KEY is not set"


def test_a_gateway_is_called_as_its_host_unless_something_else_is_said(folder: Path) -> None:
    assert gateway_name(team(folder, '[relay]\ngateway = "wss://relay.example.com:8443"')) == "relay.example.com"
    assert gateway_name(team(folder, RELAY + 'name = "g"')) == "g"


# ── the device ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_device_lies_beside_the_store_and_is_made_once(folder: Path) -> None:
    loaded = team(folder, RELAY)
    with pytest.raises(RemitError) as raised:
        open_device(loaded)
    assert raised.value.fault.suggestion == "Make one: remit devices init"
    assert not device_path(loaded).parent.exists(), "to look for a device makes nothing"
    made = create_device(loaded, "anna")
    made.state.close()
    with using_device(loaded) as device:
        assert (device.id, device.card.gateway) == (made.id, "wss://relay.example.com")
    assert device_path(loaded) == folder / ".remit" / "device.db"
    assert (folder / ".remit" / "device.key").stat().st_mode & 0o077 == 0
    assert (folder / ".remit" / ".gitignore").read_text() == "*\n"
    with pytest.raises(RemitError) as raised:
        create_device(loaded, "anna")
    assert raised.value.fault.code is Code.STATE_CONFLICT
    assert "device.key" in raised.value.fault.suggestion
    assert raised.value.fault.suggestion.endswith("To see it: remit devices show")


def test_a_key_file_that_is_gone_is_not_replaced_by_one_that_opens_nothing(folder: Path) -> None:
    loaded = team(folder, RELAY)
    create_device(loaded, "anna").state.close()
    key = folder / ".remit" / "device.key"
    key.rename(folder / "moved")
    with pytest.raises(RemitError) as raised:
        open_device(loaded)
    assert f"{key} is not there" in raised.value.fault.message
    assert not key.exists()


def test_a_passphrase_locks_the_key_file(folder: Path) -> None:
    environ = {"PASS": "correct horse battery"}
    loaded = team(folder, RELAY + 'passphrase = "$PASS"', environ)
    create_device(loaded, "anna", environ=environ).state.close()
    open_device(loaded, environ=environ).state.close()
    with pytest.raises(RemitError) as raised:
        open_device(loaded, environ={"PASS": "wrong"})
    assert "wrong passphrase for" in raised.value.fault.message
    with pytest.raises(RemitError) as raised:
        open_device(loaded, environ={})
    assert raised.value.fault.message == "the environment variable PASS is not set"


def test_a_device_is_found_by_name_id_or_as_much_of_the_id_as_is_clear() -> None:
    bob, old, anna = (
        PeerDevice(card=card("bob", 1)),
        PeerDevice(card=card("bob", 2), revoked=True),
        PeerDevice(card=card("anna", 3)),
    )
    known = [bob, old, anna]
    assert find_device(known, "bob") is bob
    assert find_device(known, old.device) is old
    assert find_device(known, anna.device[:5].upper()) is anna
    with pytest.raises(RemitError) as raised:
        find_device(known, "ann")
    assert raised.value.fault.message == "there is no device `ann`; did you mean `anna`?"
    with pytest.raises(RemitError) as raised:
        find_device([], "bob")
    assert raised.value.fault.message == "there is no device `bob`; none is known yet"


def test_what_fits_two_devices_is_not_guessed() -> None:
    one, other = PeerDevice(card=card("bob", 1), revoked=True), PeerDevice(card=card("bob", 2), revoked=True)
    with pytest.raises(RemitError) as raised:
        find_device([one, other], "bob")
    assert raised.value.fault.message == f"ambiguous device `bob`: {one.device} (bob), {other.device} (bob)"
    assert raised.value.fault.suggestion == "Type more of its id."


# ── what will not work ────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_will_not_work_with_the_known_devices_is_doubted(folder: Path) -> None:
    text = AGENT + PROFILE + 'allow_shared_agent_calls = true\ndevices = ["bib", "bob", "carl", "dora", "eve"]\n'
    loaded = team(
        folder,
        text + '[profiles.off]\nrun = ["x"]\n[shared.helper]\ndevices = ["bob"]\n[shared.none]\nagent = "helper"',
    )
    peers = [
        PeerDevice(card=card("bob", 1), shared=True, verified=True),
        PeerDevice(card=card("carl", 2)),
        PeerDevice(card=card("dora", 3), revoked=True),
        PeerDevice(card=card("eve", 4), allowed=True),
    ]
    place = "profiles.mine.devices"
    assert list(device_warnings(loaded, peers)) == [
        DeviceWarning(
            place,
            "no device bib is known here; did you mean `bob`?",
            "Run `remit pair` on one side, and `remit pair CODE` on the other.",
        ),
        DeviceWarning(
            place,
            "the device carl is known, and may not be asked from here",
            "Allow it, if it may: remit devices allow carl",
        ),
        DeviceWarning(place, "the device dora was revoked", "Pair with its new identity, or remove it from the file."),
        DeviceWarning(
            place,
            "the device eve is not verified: another device could impersonate it",
            "Pair again: remit pair",
        ),
        DeviceWarning(
            "profiles.off",
            "it may not call shared agents",
            "Allow a device, if it may: remit devices allow DEVICE --profile off",
        ),
        DeviceWarning(
            "shared.helper.devices",
            "the device bob is known, and may not reach this device",
            "Allow it, if it may: remit devices allow bob",
        ),
        DeviceWarning(
            "shared.none.devices",
            "no device is allowed",
            "Allow one: remit devices allow DEVICE --agent none",
        ),
    ]


def test_a_device_that_an_agent_lives_on_is_doubted_like_any_other(folder: Path) -> None:
    loaded = team(folder, RELAY + '[agents.away]\ndevice = "carl"\n[agents.far]\ndevice = "bib"')
    assert list(device_warnings(loaded, [PeerDevice(card=card("bob", 1)), PeerDevice(card=card("carl", 2))])) == [
        DeviceWarning(
            "agents.away.device",
            "the device carl is known, and may not be asked from here",
            "Allow it, if it may: remit devices allow carl",
        ),
        DeviceWarning(
            "agents.far.device",
            "no device bib is known here; did you mean `bob`?",
            "Run `remit pair` on one side, and `remit pair CODE` on the other.",
        ),
    ]


def test_the_doctor_warns_of_devices_that_are_not_known_and_programs_that_are_not_there(folder: Path) -> None:
    text = RELAY + '[profiles.mine]\nrun = ["no-such-agent"]\nallow_shared_agent_calls = true\ndevices = ["bob"]\n'
    loaded = team(folder, text)
    checks = {each["about"]: each for each in document("doctor", folder=folder)["checks"]}
    assert checks["device"]["state"] == "warning"
    assert checks["device"]["todo"] == "Make one: remit devices init"
    made = create_device(loaded, "anna")
    made.state.close()
    checks = {each["about"]: each for each in document("doctor", folder=folder)["checks"]}
    assert checks["device"]["state"] == "ok"
    assert checks["profiles.mine.devices"]["says"] == "no device bob is known here"
    assert checks["profiles.mine.run"]["says"] == "program `no-such-agent` not found"
    with using_device(loaded) as device:
        peers = Peers(device.state)
        bob = peers.pair(card("bob", 1))
        peers.verify(bob.device)
        peers.share(bob.device)
    assert "profiles.mine.devices" not in {each["about"] for each in document("doctor", folder=folder)["checks"]}


# ── what the owner granted ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("setting", "named", "granted"),
    [("true", True, True), ("false", False, False), (None, False, True)],
    ids=["enabled", "explicitly disabled", "not said"],
)
def test_a_grant_enables_a_profile_for_one_device_unless_the_team_file_forbids_it(
    folder: Path, setting: str | None, named: bool, granted: bool
) -> None:
    """S10: deny until enabled; an explicit `false` in the team file wins over a grant."""
    enabled = "" if setting is None else f"allow_shared_agent_calls = {setting}\n"
    loaded = team(folder, PROFILE + enabled + 'devices = ["anna"]\n')
    anna = PeerDevice(card=card("anna", 1), shared=True, verified=True)
    bob = PeerDevice(card=card("bob", 2), shared=True, verified=True, profiles=frozenset({"mine"}))
    made = profile_of(loaded, "mine", [anna, bob])
    assert made.allow_shared_agent_calls is (named or granted)
    assert made.allowed_shared_device_ids == {each.device for each, may in ((anna, named), (bob, granted)) if may}
    gone = structs.replace(bob, revoked=True)
    assert bob.device not in profile_of(loaded, "mine", [anna, gone]).allowed_shared_device_ids


def test_a_granted_agent_may_be_asked_like_one_whose_section_names_the_device(folder: Path) -> None:
    bob = PeerDevice(card=card("bob", 1), allowed=True, agents=frozenset({"helper"}))
    section = SharedSection()
    assert shared_of("helper", section, [bob]).profile.allowed_shared_device_ids == {bob.device}
    assert shared_of("other", section, [bob]).profile.allowed_shared_device_ids == frozenset()
    assert shared_of("helper", section, [bob], grants=False).profile.allowed_shared_device_ids == frozenset()
    silent = structs.replace(bob, allowed=False)
    assert shared_of("helper", section, [silent]).profile.allowed_shared_device_ids == frozenset()


def test_what_was_granted_is_not_doubted(folder: Path) -> None:
    loaded = team(folder, AGENT + PROFILE + "[shared.helper]\n")
    bob = PeerDevice(
        card=card("bob", 1), allowed=True, verified=True, agents=frozenset({"helper"}), profiles=frozenset({"mine"})
    )
    assert list(device_warnings(loaded, [bob])) == []


def test_a_grant_for_what_the_team_no_longer_has_is_warned_of(folder: Path) -> None:
    loaded = team(folder, AGENT + PROFILE + "[shared.helper]\n")
    bob = PeerDevice(
        card=card("bob", 1),
        allowed=True,
        agents=frozenset({"helper", "gone"}),
        profiles=frozenset({"mine", "old one"}),
    )
    assert list(device_warnings(loaded, [bob])) == [
        (
            "device",
            "bob was let to ask the agent gone, which the team does not share",
            "Take it back: remit devices allow bob --agent gone --remove",
        ),
        (
            "device",
            "the profile old one was let to ask bob, and the team has no such profile",
            "Take it back: remit devices allow bob --profile 'old one' --remove",
        ),
    ]
