"""The slot of a delegation: given to others while it waits, and regained before it goes on."""

from remit.runtime.frames import Frame


def give_slot(frame: Frame) -> None:
    """Let others have the slot of a delegation that waits, for one or for several."""
    frame.waiting += 1
    if frame.waiting == 1 and frame.slot is not None:
        frame.slot.release()


async def regain_slot(frame: Frame) -> None:
    """Take the slot again once nothing is waited for any more."""
    if frame.waiting == 0 and frame.slot is not None and not frame.slot.regain_now():
        await frame.slot.regain()
