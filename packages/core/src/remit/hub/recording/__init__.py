"""Records what runs get from outside of their agents' code, and replays it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

from remit.hub.recording.files import NewCalls
from remit.hub.recording.http import caught_http, without_keys
from remit.hub.recording.recorder import HubRecording, Replay
from remit.policy.verdict import Detector
from remit.runtime.agent_status import outcome_of
from remit.runtime.context import RuntimeContext
from remit.runtime.registry import team_invalid

__all__ = ["HubRecording", "NewCalls", "Replay", "recorded", "replayed", "without_keys"]


@asynccontextmanager
async def recorded(
    parts: RuntimeContext, path: Path, otherwise: Detector | None, version: str
) -> AsyncGenerator[HubRecording]:
    """Record all runs of a hub that begin within the block, and write the file at its end."""
    recorder = HubRecording(parts, path, otherwise)
    try:
        async with _attached(parts, recorder):
            yield recorder
    finally:
        recorder.write(version)


@asynccontextmanager
async def replayed(
    parts: RuntimeContext, path: Path, otherwise: Detector | None, new: NewCalls
) -> AsyncGenerator[Replay]:
    """Answer all runs of a hub that begin within the block from a recording."""
    replay = Replay(parts, path, otherwise, new)
    with without_keys() if new == "refuse" else nullcontext():
        async with _attached(parts, replay):
            yield replay


@asynccontextmanager
async def _attached(parts: RuntimeContext, recorder: HubRecording | Replay) -> AsyncGenerator[None]:
    if parts.recorder is not None:
        raise team_invalid("this hub is being recorded or replayed already")
    approver = parts.approver
    parts.recorder, parts.approver = recorder, recorder.approver(approver)
    try:
        with caught_http():
            yield
    finally:
        parts.recorder, parts.approver = None, approver
        for run in recorder.runs:
            response = await outcome_of(parts, run, raw=False)
            if response is not None:
                recorder.end(run, response)
