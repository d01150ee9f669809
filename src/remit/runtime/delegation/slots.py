"""The slot of a delegation: given up while it waits, and regained before it goes on."""

from types import TracebackType

from remit.runtime.frames import Frame


class SlotGivenUp:
    """`async with`: others have the slot of a delegation while it waits; it has one again before it goes on."""

    __slots__ = ("_frame",)

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    async def __aenter__(self) -> None:
        give_up_slot(self._frame)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        frame = self._frame
        frame.waiting -= 1
        # A delegation that is stopped needs no slot. One that only gave up waiting, by a time-out of its own, works on.
        if (kind is None or frame.stopping is None) and not _has_slot(frame):
            await regain_slot(frame)


def give_up_slot(frame: Frame) -> None:
    """Let others have the slot of a delegation that waits, for one thing or for several."""
    waiting, slot = frame.waiting, frame.slot
    frame.waiting = waiting + 1
    if not waiting and slot is not None:
        slot.release()


async def regain_slot(frame: Frame) -> None:
    """Take a slot again once the delegation waits for nothing any more."""
    if frame.slot is not None and not _has_slot(frame):
        await frame.slot.regain()


def _has_slot(frame: Frame) -> bool:
    """Take a slot again if one is free; return whether the delegation has one now, or needs none yet."""
    slot = frame.slot
    return frame.waiting != 0 or slot is None or slot.regain_now()
