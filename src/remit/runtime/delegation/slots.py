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
        if kind is None or frame.stopping is None:
            await regain_slot(frame)


def give_up_slot(frame: Frame) -> None:
    """Let others have the slot of a delegation that waits, for one thing or for several."""
    frame.waiting += 1
    if frame.waiting == 1 and frame.slot is not None:
        frame.slot.release()


async def regain_slot(frame: Frame) -> None:
    """Take a slot again once the delegation waits for nothing any more."""
    if frame.waiting == 0 and frame.slot is not None and not frame.slot.regain_now():
        await frame.slot.regain()
