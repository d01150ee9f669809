"""Groups of devices: who belongs to one, which of its devices is asked, and what it permits."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devices import gateway, introduce, linked, sealer
from pairing import Hosting, meeting_at, owner_of
from remit import Brief, Hub
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, RemitError
from remit_cli.config.composition import hub_of
from remit_relay.call_shared import GroupCalls
from remit_relay.client.connection import DevicePresence
from remit_relay.device.peers import Grants, PeerDevice, Peers
from remit_relay.messages.types import AgentOffer, latest_offers
from remit_relay.pairing.client import join_pairing
from remit_relay.run_targets import best_member
from remit_relay.session.run import Overlay
from remit_relay.team.device import create_device, device_warnings, find_device, find_devices, using_device
from remit_relay.team.device_service import Relaying, profile_of, relaying, shared_of
from remit_relay.team.section import SharedSection
from remit_testing import MemoryStore
from samples import a_request
from shared_teams import BOB, make_annas, team_in
from shared_teams import introduce as introduce_teams
from waiting import eventually

HELPER = (AgentOffer(name="helper"),)


# ── which devices belong to a group ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def known(tmp_path: Path) -> Peers:
    """Anna's known devices: a desktop and a laptop, in one group."""
    anna = sealer(tmp_path, "anna")
    for name in ("desktop", "laptop"):
        introduce(anna, sealer(tmp_path, name))
    anna.peers.group("bobs", [each.device for each in anna.peers.list()])
    return anna.peers


def names(peers: "tuple[PeerDevice, ...] | list[PeerDevice]") -> list[str]:
    return [each.card.name for each in peers]


def code_of(error: "pytest.ExceptionInfo[RemitError]") -> Code:
    return error.value.fault.code


def test_a_group_stands_for_its_devices_until_they_are_removed_or_revoked(known: Peers) -> None:
    desktop, laptop = known.list()
    assert names(find_devices(known.list(), "bobs")) == ["desktop", "laptop"]
    assert names(find_devices(known.list(), "laptop")) == ["laptop"]
    with pytest.raises(RemitError, match="`bobs` is a group of desktop, laptop, and one device is needed here"):
        find_device(known.list(), "bobs")
    assert known.revoke(desktop.device).groups == frozenset()
    assert names(known.members("bobs")) == ["laptop"]
    with pytest.raises(RemitError) as refused:
        known.group("bobs", [desktop.device])
    assert code_of(refused) is Code.PERMISSION_DENIED
    assert known.ungroup("bobs", [laptop.device]) == ()
    assert known.groups() == []
    with pytest.raises(RemitError, match="there is no device `bobs`"):
        find_devices(known.list(), "bobs")


def test_a_device_and_a_group_never_have_one_name(known: Peers, tmp_path: Path) -> None:
    desktop, _ = known.list()
    for taken in ("laptop", desktop.device):
        with pytest.raises(RemitError, match="so a group cannot be"):
            known.group(taken, [desktop.device])
    with pytest.raises(RemitError, match="printable characters"):
        known.group(" x", [desktop.device])
    other = sealer(tmp_path, "bobs").device.card
    for refuse in (known.check, known.pair, partial(known.pair_verified, grants=Grants())):
        with pytest.raises(RemitError, match="is called 'bobs', which is the name of a group here") as refused:
            refuse(other)
        assert code_of(refused) is Code.STATE_CONFLICT
    assert len(known.list()) == 2
    known.ungroup("bobs")
    known.pair(other)


def test_a_permission_for_a_group_is_one_for_each_of_its_devices(known: Peers, tmp_path: Path) -> None:
    team = team_in(_annas(tmp_path, "ws://127.0.0.1:9"))
    desktop, laptop = known.list()
    both = {desktop.device, laptop.device}
    section = SharedSection(agent="helper", devices=frozenset({"bobs"}))
    assert profile_of(team, "mine", known.list()).allowed_shared_device_ids == both
    assert shared_of("helper", section, known.list()).profile.allowed_shared_device_ids == both
    known.allow(desktop.device, allowed=False)
    assert shared_of("helper", section, known.list()).profile.allowed_shared_device_ids == {laptop.device}
    known.verify(laptop.device)
    assert {each.says for each in device_warnings(team, known.list())} == {
        "the device desktop is known, and may not be asked from here"
    }
    known.revoke(laptop.device)
    assert profile_of(team, "mine", known.list()).allowed_shared_device_ids == {desktop.device}


# ── which of them is asked ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("offers", "presence", "best"),
    [
        ({"desktop": HELPER, "laptop": HELPER}, {}, "desktop"),
        ({"desktop": HELPER, "laptop": HELPER}, {"laptop": DevicePresence(present=True)}, "laptop"),
        (
            {"desktop": HELPER, "laptop": HELPER},
            {"desktop": DevicePresence(present=False, last_heard_ms=9), "laptop": DevicePresence(present=True)},
            "laptop",
        ),
        (
            {"desktop": HELPER, "laptop": HELPER},
            {"desktop": DevicePresence(last_heard_ms=1), "laptop": DevicePresence(present=False, last_heard_ms=2)},
            "laptop",
        ),
        ({"desktop": HELPER, "laptop": ()}, {"laptop": DevicePresence(present=True)}, "desktop"),
        ({"desktop": HELPER, "laptop": None}, {"laptop": DevicePresence(present=True)}, "desktop"),
        ({"desktop": None, "laptop": ()}, {}, "desktop"),
        ({"desktop": (), "laptop": (AgentOffer(name="other"),)}, {}, None),
    ],
)
def test_of_those_that_offer_the_agent_a_connected_one_is_asked_or_the_one_heard_last(
    known: Peers,
    offers: dict[str, tuple[AgentOffer, ...] | None],
    presence: dict[str, DevicePresence],
    best: str | None,
) -> None:
    called = {each.device: each.card.name for each in known.list()}
    member = best_member(
        known.list(),
        "helper",
        lambda device: offers[called[device]],
        lambda device: presence.get(called[device], DevicePresence()),
    )
    assert (member and member.card.name) == best


async def test_a_call_that_continues_after_a_restart_never_goes_to_another_device(tmp_path: Path) -> None:
    anna = sealer(tmp_path, "anna")
    for name in ("desktop", "laptop"):
        introduce(anna, sealer(tmp_path, name))
    desktop, laptop = anna.peers.list()
    anna.peers.group("bobs", [desktop.device, laptop.device])
    post = linked(anna, "ws://127.0.0.1:9")
    presence = post.presence

    def calls() -> GroupCalls:
        return GroupCalls(anna, post, now_ms=lambda: 1)

    def chosen_member(made: Request, *, sent: bool = False) -> str:
        return calls().member("bobs", "far", "", made, sent=sent).card.name

    first, second = a_request(run="run-1"), a_request(run="run-2")
    assert chosen_member(first) == "desktop"
    presence.reported({laptop.device: True})
    assert (chosen_member(first, sent=True), chosen_member(second)) == ("desktop", "laptop")
    anna.peers.ungroup("bobs", [desktop.device])
    assert chosen_member(first, sent=True) == "desktop", "it may have carried it out"
    anna.peers.revoke(desktop.device)
    for made in (first, a_request(run="run-3")):
        with pytest.raises(RemitError, match="which one is not known any more") as refused:
            chosen_member(made, sent=True)
        assert code_of(refused) is Code.OUTCOME_UNKNOWN
    calls().ended("far", second)
    with pytest.raises(RemitError, match="which one is not known any more"):
        chosen_member(second, sent=True)
    anna.peers.ungroup("bobs")
    with pytest.raises(RemitError, match="no device of the group bobs may be asked from here"):
        chosen_member(second)


async def test_a_session_stays_with_its_device_as_long_as_that_is_in_the_group(tmp_path: Path) -> None:
    anna = sealer(tmp_path, "anna")
    for name in ("desktop", "laptop"):
        introduce(anna, sealer(tmp_path, name))
    desktop, laptop = anna.peers.list()
    anna.peers.group("bobs", [desktop.device, laptop.device])
    post = linked(anna, "ws://127.0.0.1:9")
    calls = GroupCalls(anna, post, now_ms=lambda: 1)
    made = a_request(run="run-1", session="review")
    assert calls.member("bobs", "far", "", made, sent=False) == anna.peers.get(desktop.device)
    calls.ended("far", made)
    post.presence.reported({laptop.device: True})
    later = a_request(run="run-2", session="review")
    assert calls.member("bobs", "far", "", later, sent=False).card.name == "desktop"
    anna.peers.ungroup("bobs", [desktop.device])
    assert calls.member("bobs", "far", "", later, sent=False).card.name == "laptop"


# ── with a gateway ────────────────────────────────────────────────────────────────────────────────────────────────────


def _annas(path: Path, url: str) -> Path:
    folder = make_annas(path / "annas", url)
    file = folder / "remit.toml"
    text = file.read_text().replace('"bob"', '"bobs"').replace("[relay]\n", '[relay]\nname = "g"\n')
    file.write_text(text + '[agents.far]\ndevice = "bobs"\n')
    return folder


class Group:
    """Anna, and the two devices of her group."""

    def __init__(self, path: Path, url: str) -> None:
        self.annas = _annas(path, url)
        self.folders: dict[str, Path] = {}
        self.ids: dict[str, str] = {}
        for name in ("desktop", "laptop"):
            folder = self.folders[name] = path / name
            folder.mkdir()
            text = BOB.format(gateway=url).replace("[relay]\n", '[relay]\nname = "g"\n')
            (folder / "remit.toml").write_text(text)
            device = create_device(team_in(folder), name)
            self.ids[name] = device.id
            device.state.close()
            introduce_teams(self.annas, folder)
        with using_device(team_in(self.annas)) as anna:
            Peers(anna.state).group("bobs", self.ids.values())

    def asking(self, hub: Hub | None = None) -> AbstractAsyncContextManager[Relaying]:
        return relaying(team_in(self.annas), hub=hub, host=True, share=False)

    @asynccontextmanager
    async def sharing(self, name: str) -> AsyncGenerator[Relaying]:
        hub = Hub(store=MemoryStore())

        async def helper(brief: Brief) -> str:
            return f"{name} heard: {brief.text}"

        hub.add("helper", helper)
        async with hub, relaying(team_in(self.folders[name]), hub=hub, host=False, share=True) as device:
            await device.ready.wait()
            yield device


async def start(device: Relaying, named: str = "bobs", **more: Any) -> Overlay:
    assert device.host is not None
    return await device.host.start("mine", named, "review this API", **more)


async def _connected(anna: Relaying, device: str) -> None:
    await eventually(lambda: anna.presence_of(device).present is True)
    await eventually(lambda: latest_offers(anna.device.state, device))


async def test_a_run_with_a_group_goes_to_the_connected_device_and_stays_there(tmp_path: Path) -> None:
    async with gateway(tmp_path) as serving:
        group = Group(tmp_path, serving.url)
        desktop, laptop = group.ids["desktop"], group.ids["laptop"]
        async with group.asking() as anna:
            host = anna.host
            assert host is not None
            async with group.sharing("laptop"):
                await _connected(anna, laptop)
                first = await start(anna)
                assert (first.device, first.agent) == (laptop, "helper")
                assert (await start(anna, "laptop")).device == laptop, "a name will do"
            await eventually(lambda: anna.presence_of(laptop).present is False)
            async with group.sharing("desktop"):
                await _connected(anna, desktop)
                second = await start(anna)
                assert second.device == desktop
                with pytest.raises(RemitError, match="no device of the group bobs shares an agent `other`"):
                    await start(anna, agent="other")
                await anna.post.do(anna.sealer.peers.revoke, desktop)
                await anna.refresh()
                assert (await start(anna)).device == laptop, "a revoked device never counts"
            assert next(each for each in host.runs if each.id == first.id).device == laptop
            await anna.post.do(anna.sealer.peers.ungroup, "bobs")
            await anna.refresh()
            with pytest.raises(RemitError) as refused:
                await start(anna)
            assert code_of(refused) is Code.PERMISSION_DENIED


async def test_a_device_with_the_name_of_a_group_is_not_paired_and_both_are_told(tmp_path: Path) -> None:
    anna, desktop, other = (sealer(tmp_path, name) for name in ("anna", "desktop", "bobs"))
    introduce(anna, desktop)
    anna.peers.group("bobs", [desktop.device.id])
    async with gateway(tmp_path) as serving:
        hosting = Hosting(meeting_at(serving.url), anna)
        with pytest.raises(RemitError):
            await join_pairing(meeting_at(serving.url), owner_of(other), await hosting.code())
        assert "which is the name of a group here" in str(await hosting.error())
    assert (names(anna.peers.list()), other.peers.list()) == (["desktop"], [])


async def test_an_agent_of_a_team_can_be_on_a_group(tmp_path: Path) -> None:
    async with gateway(tmp_path) as serving:
        group = Group(tmp_path, serving.url)
        async with hub_of(team_in(group.annas)) as hub, group.asking(hub) as anna:
            for name in ("laptop", "desktop"):
                async with group.sharing(name):
                    await _connected(anna, group.ids[name])
                    assert (await hub.ask("far", "this one?", user="anna")).unwrap() == f"{name} heard: this one?"
                await eventually(lambda each=name: anna.presence_of(group.ids[each]).present is False)
            assert anna.device.state.fact("group-calls", dict[str, tuple[str, int]]) == {}
