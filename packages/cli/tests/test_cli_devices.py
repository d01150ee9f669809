"""`remit devices`: a device that is made, known to others, allowed and revoked."""

import json
from pathlib import Path

import pytest

from command_line import REMIT, document, remit
from remit_relay.e2e.channel import MessageCipher, Opened
from remit_relay.messages.types import AgentOffer, OffersMessage, store_offers
from remit_relay.team.device import using_device
from shared_teams import device_of, introduce, introduce_by_typing, link_of, make_annas, make_bobs, team_in
from terminals import Terminal


@pytest.fixture
def annas(tmp_path: Path) -> Path:
    return make_annas(tmp_path / "annas")


@pytest.fixture
def bobs(tmp_path: Path) -> Path:
    return make_bobs(tmp_path / "bobs")


def test_a_device_is_made_once_and_shows_the_link_by_which_others_know_it(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text('name = "office"\n')
    before = remit("devices", "show", folder=tmp_path)
    assert before.returncode == 3
    assert before.stderr.endswith("→ Make one: remit devices init\n")
    made = remit("devices", "init", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[0].split()[1].startswith("office@")
    assert '→ Set its gateway in remit.toml: [relay], gateway = "wss://…"' in made.stderr
    shown = document("devices", "show", folder=tmp_path)
    assert shown["schema"] == "remit.device/1"
    assert remit("devices", "show", "--link", folder=tmp_path).stdout == shown["link"] + "\n"
    assert shown["link"].startswith("remit:pair#")
    assert shown["fingerprint"].startswith("SHA256:")
    again = remit("devices", "init", "--name", "other", folder=tmp_path)
    assert again.returncode != 0
    assert again.stderr.endswith("move that file and device.key away. To see it: remit devices show\n")
    assert document("devices", "show", folder=tmp_path) == shown


def test_the_card_names_the_gateway_that_the_team_file_names_now(annas: Path) -> None:
    file = annas / "remit.toml"
    file.write_text(file.read_text().replace("ws://127.0.0.1:9", "wss://relay.example.com"))
    before = document("devices", "show", folder=annas)
    assert before["gateway"] == "wss://relay.example.com"


def test_both_owners_see_the_same_code_and_each_decides_what_the_other_may(annas: Path, bobs: Path) -> None:
    introduce_by_typing(annas, bobs)
    (bob,) = document("devices", "list", folder=annas)["devices"]
    assert {key: bob[key] for key in ("name", "verified", "shared", "allowed", "revoked")} == {
        "name": "bob",
        "verified": True,
        "shared": True,
        "allowed": False,
        "revoked": False,
    }
    listed = remit("devices", "list", folder=annas).stdout.splitlines()
    assert listed[0].split("  ")[0] == "NAME"
    assert listed[1].split() == ["bob", bob["id"], "yes", "yes"]
    taken_back = document("devices", "allow", bob["id"][:6], "--one-way", "--remove", folder=annas)
    assert not taken_back["device"]["shared"]


def test_a_device_that_was_not_compared_is_known_and_nothing_more(annas: Path, bobs: Path) -> None:
    paired = remit("devices", "pair", link_of(bobs), folder=annas)
    assert paired.returncode == 0
    assert len(paired.stdout.split()) == 8, "the code, and nothing else, is data"
    assert "not verified: compare the code, then pair again with --verified" in paired.stderr
    assert "It has no permissions yet. To work with it: remit devices allow bob\n" in paired.stderr
    (bob,) = document("devices", "list", folder=annas)["devices"]
    assert (bob["verified"], bob["shared"], bob["allowed"]) == (False, False, False)
    allowed = remit("devices", "allow", "bob", folder=annas)
    assert "It is not verified" in allowed.stderr
    assert "As yet" not in allowed.stderr, "a profile names it"
    file = annas / "remit.toml"
    file.write_text(file.read_text().replace('devices = ["bob"]', ""))
    allowed = remit("devices", "allow", "bob", folder=annas)
    assert (
        "→ Currently no profile or agent calls it, and nothing is shared with it: "
        "remit devices allow bob --profile NAME, or --agent NAME\n"
    ) in allowed.stderr


@pytest.mark.parametrize("verified", [True, False])
def test_a_device_is_allowed_while_it_is_paired_only_if_it_is_verified(annas: Path, bobs: Path, verified: bool) -> None:
    flags = ["--allow", *(["--verified"] if verified else [])]
    paired = document("devices", "pair", link_of(bobs), *flags, folder=annas)["device"]
    assert (paired["verified"], paired["allowed"]) == (verified, verified)
    stderr = remit("devices", "pair", link_of(bobs), *flags, folder=annas).stderr
    assert (" is paired, verified, and may contact this device.\n" in stderr) is verified
    assert ("A device must be verified before it is allowed.\n" in stderr) is not verified


def test_a_device_that_an_agent_of_the_team_lives_on_is_not_said_to_be_of_no_use(tmp_path: Path, bobs: Path) -> None:
    (tmp_path / "remit.toml").write_text('[relay]\ngateway = "ws://127.0.0.1:9"\n[agents.expert]\ndevice = "bob"\n')
    assert remit("devices", "init", folder=tmp_path).returncode == 0
    paired = remit("devices", "pair", link_of(bobs), "--verified", "--allow", folder=tmp_path)
    assert paired.stderr.endswith("may contact this device.\n")


def test_a_name_that_is_said_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text('name = "office"\n')
    refused = remit("devices", "init", "--name", " ", folder=tmp_path)
    assert refused.returncode == 2
    assert "--name: must not be empty; leave it out to use the host name\n" in refused.stderr


def test_what_to_type_next_names_the_team_that_was_named(tmp_path: Path, bobs: Path) -> None:
    file = tmp_path / "anna's.toml"
    file.write_text('[store]\npath = "anna/hub.db"\n[relay]\ngateway = "ws://127.0.0.1:9"\n')
    team = ("--team", file.name)
    named = """--team 'anna'"'"'s.toml'\n"""
    assert remit("devices", "list", *team, folder=tmp_path).stderr.endswith(f"→ Make one: remit devices init {named}")
    assert f"remit devices pair LINK {named}" in remit("devices", "init", *team, folder=tmp_path).stderr
    assert f"remit devices pair LINK {named}" in remit("devices", "list", *team, folder=tmp_path).stderr
    paired = remit("devices", "pair", link_of(bobs), *team, folder=tmp_path)
    assert f"remit devices allow bob {named}" in paired.stderr
    unknown = document("devices", "allow", "bo", *team, folder=tmp_path)["suggestion"]
    assert unknown.startswith(f"See them all with `remit devices list {named.strip()}`; ")


def test_a_device_that_was_revoked_cannot_be_paired_with_again_and_shows_no_code(annas: Path, bobs: Path) -> None:
    introduce(annas, bobs)
    assert remit("devices", "revoke", "bob", folder=annas).returncode == 0
    again = remit("devices", "pair", link_of(bobs), "--verified", folder=annas)
    assert (again.returncode, again.stdout) == (4, "")
    assert (
        "was revoked\n→ Pair with a new identity of it: its owner moves device.db and device.key away" in again.stderr
    )


# ── what a device shares ──────────────────────────────────────────────────────────────────────────────────────────────


def offer(annas: Path, bobs: Path, *agents: AgentOffer) -> None:
    """Have Anna's device hear what Bob's shares with it."""
    with using_device(team_in(annas)) as device:
        opened = Opened(id=0, sender=device_of(bobs), message="", requester="", body=b"")
        store_offers(MessageCipher(device), opened, OffersMessage(agents=agents))


def test_what_a_device_shares_is_listed_as_it_said_last(annas: Path, bobs: Path) -> None:
    introduce(annas, bobs)
    (bob,) = document("devices", "list", folder=annas)["devices"]
    assert (bob["shared"], bob["offers"]) == (True, None), "it has said nothing yet"
    offer(annas, bobs, AgentOffer(name="expert", description="Knows\x1b[2J the \u202eAPI."), AgentOffer(name="helper"))
    (bob,) = document("devices", "list", folder=annas)["devices"]
    assert [each["name"] for each in bob["offers"]] == ["expert", "helper"]
    listed = remit("devices", "list", folder=annas).stdout
    first, second = listed.split("\n\n")
    assert first.splitlines()[1].split() == ["bob", bob["id"], "yes", "expert,", "helper"]
    assert second.splitlines() == [
        "SHARED WITH ME  BY   DESCRIPTION",
        "expert          bob  Knows the \ufffdAPI.",
        "helper          bob",
    ]
    offer(annas, bobs)
    (bob,) = document("devices", "list", folder=annas)["devices"]
    assert (bob["shared"], bob["offers"]) == (False, [])
    offer(annas, bobs, AgentOffer(name="helper"))
    (bob,) = document("devices", "list", folder=annas)["devices"]
    assert bob["shared"]
    revoked = document("devices", "revoke", "bob", folder=annas)["device"]
    assert (revoked["shared"], revoked["offers"]) == (False, None)


def test_who_is_allowed_shares_as_soon_as_it_says_so(annas: Path, bobs: Path) -> None:
    assert (
        document("devices", "pair", link_of(bobs), "--verified", "--allow", folder=annas)["device"]["shared"] is False
    )
    offer(annas, bobs, AgentOffer(name="helper"))
    (bob,) = document("devices", "list", folder=annas)["devices"]
    assert (bob["shared"], bob["allowed"]) == (True, True)
    taken_back = document("devices", "allow", "bob", "--remove", folder=annas)["device"]
    assert (taken_back["shared"], taken_back["offers"]) == (False, None)


@pytest.mark.parametrize(("answer", "code", "known"), [("y", 0, [True]), ("later", 0, [False]), ("no", 4, [])])
def test_in_a_terminal_the_owner_is_asked_whether_the_codes_match(
    annas: Path, bobs: Path, answer: str, code: int, known: list[bool]
) -> None:
    with Terminal([REMIT, "devices", "pair", link_of(bobs)], folder=annas) as terminal:
        terminal.wait_for("Do they see the same digits?")
        terminal.type(f"{answer}\n")
        assert terminal.wait() == code
    assert [each["verified"] for each in document("devices", "list", folder=annas)["devices"]] == known


def test_a_revoked_device_is_over_for_good(annas: Path, bobs: Path) -> None:
    introduce(annas, bobs)
    revoked = document("devices", "revoke", "anna", folder=bobs)["device"]
    assert (revoked["revoked"], revoked["allowed"]) == (True, False)
    assert document("devices", "revoke", "anna", folder=bobs)["device"] == revoked
    again = remit("devices", "pair", link_of(annas), "--verified", folder=bobs)
    assert again.returncode == 4
    assert "was revoked" in again.stderr
    assert remit("devices", "allow", "anna", folder=bobs).returncode == 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("pair", "remit:pair#abc"), 2, "Ask for the card again and copy all of it."),
        (("pair", "https://example.com"), 2, "Copy the whole link, from `remit:pair#` or `https://` to the end."),
        (("allow", "bib"), 2, "there is no device `bib`; none is known yet"),
        (("revoke", "bib"), 2, "See them all with `remit devices list`"),
        (("allow",), 2, "Missing argument 'DEVICE'"),
    ],
)
def test_what_cannot_be_done_says_what_to_do(annas: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = remit("devices", *arguments, folder=annas)
    assert message in done.stderr
    assert (done.returncode, done.stdout) == (code, "")


def test_a_device_does_not_pair_with_itself(annas: Path) -> None:
    done = remit("devices", "pair", link_of(annas), folder=annas)
    assert done.returncode == 2
    assert "this is the link of this device; give the link of the other one" in done.stderr


def test_a_link_that_was_changed_on_the_way_is_refused(annas: Path, bobs: Path) -> None:
    link = link_of(bobs)
    at = len(link) // 2
    changed = link[:at] + ("A" if link[at] != "A" else "B") + link[at + 1 :]
    done = remit("devices", "pair", changed, "--verified", "--json", folder=annas)
    assert done.returncode != 0
    assert json.loads(done.stdout)["schema"] == "remit.error/1"
    assert document("devices", "list", folder=annas)["devices"] == []
