"""Two devices of one owner: what each side grants by saying so, and what it does not."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from devices import gateway, introduce, sealer
from remit import Brief, Hub
from remit.protocol.errors import Code, RemitError
from remit_relay.device.peers import Grants, Peers
from remit_relay.messages.types import latest_offers
from remit_relay.session.run import Overlay
from remit_relay.team.device import device_warnings, using_device
from remit_relay.team.device_service import Relaying, profile_of, relaying, shared_of
from remit_relay.team.section import SharedSection
from remit_testing import MemoryStore
from shared_teams import introduce as introduce_teams
from shared_teams import make_annas, make_bobs, team_in
from waiting import eventually

OWN = Grants(own=True)


@pytest.fixture
def known(tmp_path: Path) -> Peers:
    """Anna's known devices: her laptop, which is verified."""
    anna, laptop = sealer(tmp_path, "anna"), sealer(tmp_path, "laptop")
    introduce(anna, laptop)
    anna.peers.verify(laptop.device.id)
    return anna.peers


def folder_of(path: Path, allow: str, gateway: str = "ws://127.0.0.1:9") -> Path:
    """Return Anna's folder; her profile names no device."""
    folder = make_annas(path / "annas", gateway)
    _change(folder, 'allow_shared_agent_calls = true\ndevices = ["bob"]\n', allow)
    return folder


def _change(folder: Path, old: str, new: str) -> None:
    file = folder / "remit.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new).replace("[relay]\n", '[relay]\nname = "g"\n'))


@pytest.mark.parametrize(
    ("allow", "may"),
    [("", True), ("allow_shared_agent_calls = true\n", True), ("allow_shared_agent_calls = false\n", False)],
)
def test_an_own_device_may_be_asked_by_all_profiles_unless_the_team_file_says_false(
    known: Peers, tmp_path: Path, allow: str, may: bool
) -> None:
    team = team_in(folder_of(tmp_path, allow))
    (laptop,) = known.list()
    assert profile_of(team, "mine", known.list()).allowed_shared_device_ids == frozenset()
    known.grant(laptop.device, OWN)
    profile = profile_of(team, "mine", known.list())
    assert (profile.allowed_shared_device_ids, profile.allow_shared_agent_calls) == (
        {laptop.device} if may else set(),
        may,
    )
    assert bool(list(device_warnings(team, known.list()))) is not may


def test_an_own_device_may_ask_all_shared_agents_until_that_is_taken_back(known: Peers) -> None:
    (laptop,) = known.list()

    def may() -> bool:
        shared = shared_of("helper", SharedSection(agent="helper"), known.list())
        return laptop.device in shared.profile.allowed_shared_device_ids

    assert not may()
    for end in (
        lambda: known.withdraw(laptop.device, OWN),
        lambda: known.allow(laptop.device, allowed=False),
        lambda: known.share(laptop.device, shared=False),
        lambda: known.revoke(laptop.device),
    ):
        assert known.grant(laptop.device, OWN).may_talk
        assert may()
        known.replace_grants(laptop.device, Grants())
        assert may(), "who changes the grants by name does not change whose it is"
        assert not end().own
        assert not may()


def test_only_a_verified_device_can_be_an_own_one(tmp_path: Path) -> None:
    anna, other = sealer(tmp_path, "anna"), sealer(tmp_path, "other")
    introduce(anna, other)
    with pytest.raises(RemitError, match="is not verified, so it cannot be one of your own") as refused:
        anna.peers.grant(other.device.id, OWN)
    assert refused.value.fault.code is Code.PERMISSION_DENIED
    assert anna.peers.pair_verified(other.device.card, OWN).own


async def start(device: Relaying, named: str) -> Overlay:
    assert device.host is not None
    return await device.host.start("mine", named, "review this API")


async def test_each_direction_needs_both_sides(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        serving = await stack.enter_async_context(gateway(tmp_path))
        annas, bobs = folder_of(tmp_path, "", serving.url), make_bobs(tmp_path / "bobs", serving.url)
        _change(bobs, 'devices = ["anna"]\n', "")
        introduce_teams(annas, bobs)
        hub = await stack.enter_async_context(Hub(store=MemoryStore()))

        async def helper(brief: Brief) -> str:
            return f"heard: {brief.text}"

        hub.add("helper", helper)
        anna = await stack.enter_async_context(relaying(team_in(annas), hub=None, host=True, share=False))
        bob = await stack.enter_async_context(relaying(team_in(bobs), hub=hub, host=False, share=True))
        await eventually(lambda: latest_offers(anna.device.state, bob.device.id) == ())

        # What Anna marks lets her profile ask, and Bob still shares nothing with her.
        with using_device(team_in(annas)) as own:
            Peers(own.state).grant(bob.device.id, OWN)
        await anna.refresh()
        with pytest.raises(RemitError, match="bob shares nothing with this device"):
            await start(anna, bob.device.id)

        # What Bob marks shares all with her, and whom her profiles may ask she decides.
        await anna.post.do(anna.sealer.peers.withdraw, bob.device.id, OWN)
        await anna.refresh()
        await bob.post.do(bob.sealer.peers.grant, anna.device.id, OWN)
        await bob.refresh()
        await eventually(lambda: latest_offers(anna.device.state, bob.device.id))
        with pytest.raises(RemitError) as refused:
            await start(anna, bob.device.id)
        assert refused.value.fault.code is Code.PERMISSION_DENIED

        await anna.post.do(anna.sealer.peers.grant, bob.device.id, OWN)
        await anna.refresh()
        run = await start(anna, "bob")
        assert (run.device, run.agent) == (bob.device.id, "helper")
        host = anna.host
        assert host is not None
        await eventually(lambda: next(each for each in host.runs if each.id == run.id).state == "completed")
