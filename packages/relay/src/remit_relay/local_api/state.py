"""The current state of a device as the local API shows it, and what changed of it."""

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct

from remit import __version__
from remit_relay.client.connection import GatewayConnection
from remit_relay.client.presence import DevicePresence
from remit_relay.local_api.events import Changes
from remit_relay.local_api.public_devices import (
    Counts,
    DeviceView,
    ProfileView,
    SharedAgentView,
    SharedStatus,
    device_view,
    profile_view,
)
from remit_relay.local_api.public_runs import SharedRunLine, SharedRunView, Surroundings, UnreadView, line, view
from remit_relay.serve_shared import Shared
from remit_relay.session.moves import ENDED
from remit_relay.session.run import Overlay
from remit_relay.session_service import SessionService

PresenceOf = Callable[[str], DevicePresence | None]
"""Returns whether a device is present; None if that is not known."""


class DeviceParts(Struct, frozen=True, kw_only=True):
    """The parts of a running device besides its runs, as far as they are shown."""

    link: GatewayConnection | None = None
    shared: Mapping[str, Shared] = {}
    """The agents that the device shares, by their shared names."""
    presence: PresenceOf = lambda _: None


class DeviceViews:
    """Makes all views, and notes in *changes* what changed by other ways than a step of a run."""

    def __init__(
        self, host: SessionService, changes: Changes, parts: DeviceParts, *, now_ms: Callable[[], int]
    ) -> None:
        self.host = host
        self.changes = changes
        self._parts = parts
        self._now_ms = now_ms
        self._started_ms = now_ms()
        self._looking = asyncio.Lock()
        self._devices: dict[str, DeviceView] = {}
        self._profiles: dict[str, ProfileView] = {}
        self._unread: UnreadView | None = None
        self._counted: dict[str, tuple[Overlay, int]] = {}
        """The unread entries of each run, as of its state then."""

    # ── views ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, run: Overlay) -> SharedRunView:
        """Return the view of a run."""
        around = Surroundings(
            now_ms=self._now_ms(),
            unread=self.host.marks.unread(run),
            profile=self.host.profiles.get(run.profile),
            activity=self.host.activity(run),
        )
        return view(self.host.displayed(run), around)

    def line(self, run: Overlay) -> SharedRunLine:
        """Return a displayed run in one line."""
        return line(run, self.host.marks.unread(run))

    def profiles(self) -> list[ProfileView]:
        """Return all profiles, by name."""
        return [profile_view(self.host.profiles[name]) for name in sorted(self.host.profiles)]

    async def devices(self) -> list[DeviceView]:
        """Return all known devices, by name."""
        known = await self.host.known()
        return [device_view(peer, offers, self._parts.presence(peer.device)) for peer, offers in known]

    def unread(self) -> UnreadView:
        """Return what the user has not read."""
        for run in self.host.runs:
            known = self._counted.get(run.id)
            if known is None or known[0] is not run:
                self._counted[run.id] = (run, self.host.marks.unread(run))
        devices: dict[str, int] = {}
        for run, count in self._counted.values():
            if count:
                devices[run.device] = devices.get(run.device, 0) + count
        runs = {run.id: count for run, count in self._counted.values() if count}
        return UnreadView(total=sum(runs.values()), devices=devices, runs=runs)

    async def read(self, run: Overlay, number: int) -> Overlay:
        """Note that the user has read a run up to an entry."""
        await self.host.read(run, number)
        self._counted.pop(run.id, None)
        now = next(each for each in self.host.runs if each.id == run.id)
        self.changes.changed(now)
        return now

    async def status(self) -> SharedStatus:
        """Return the device in short."""
        self._see_connection()
        device, runs = self.host.device, self.host.runs
        open_runs = [run for run in runs if run.state not in ENDED]
        shared = self._parts.shared
        return SharedStatus(
            version=__version__,
            device=device.id,
            name=device.card.name,
            started_ms=self._started_ms,
            connection=self.changes.connection,
            shared=tuple(
                SharedAgentView(
                    name=name,
                    description=shared[name].description,
                    devices=tuple(sorted(shared[name].profile.allowed_shared_device_ids)),
                )
                for name in sorted(shared)
            ),
            counts=Counts(
                runs=len(runs),
                open_runs=len(open_runs),
                drafts=sum(run.waits for run in open_runs),
                questions=sum(len(run.questions) for run in open_runs),
                unread=self.unread().total,
                devices=len(await self.host.known()),
                profiles=len(self.host.profiles),
            ),
        )

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def refresh(self) -> None:
        """Read everything anew, and note what changed."""
        async with self._looking:
            for device in await self.devices():
                if self._devices.get(device.id) != device:
                    self._devices[device.id] = device
                    self.changes.note("device", device.id, device)
            self.look()

    def look(self) -> None:
        """Note what changed, as far as it can be seen without reading the device's file."""
        self._see_connection()
        for profile in self.profiles():
            if self._profiles.get(profile.id) != profile:
                self._profiles[profile.id] = profile
                self.changes.note("profile", profile.id, profile)
        unread = self.unread()
        if unread != self._unread:
            self._unread = unread
            self.changes.note("unread", "", unread)

    def _see_connection(self) -> None:
        if self._parts.link is not None:
            status = self._parts.link.status
            self.changes.linked(status.state, status.why, status.since_ms)
