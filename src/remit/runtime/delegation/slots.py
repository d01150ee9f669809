"""The slot of a delegation: released while it waits, and regained before it continues."""

from remit.runtime.frames import Frame


def give_slot(frame: Frame) -> None:
    """Release the slot of a delegation that waits, for one thing or several."""
    frame.waiting += 1
    if frame.waiting == 1 and frame.slot is not None:
        frame.slot.release()


async def regain_slot(frame: Frame) -> None:
    """Regain the slot once the delegation waits for nothing more."""
    if frame.waiting == 0 and frame.slot is not None and not frame.slot.regain_now():
        await frame.slot.regain()
