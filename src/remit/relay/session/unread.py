"""Which entries of each run the user has not read yet; stored in the device's file.

reads                 whether marks are kept; runs from before that count as read
read/ID               the number of the last entry that the user has read in a run
"""

from collections.abc import Iterable

from remit.relay.device.state import DeviceFile
from remit.relay.session.run import Overlay


class ReadMarks:
    """The marks of a device. A mark only moves forward; everything is synchronous."""

    def __init__(self, file: DeviceFile) -> None:
        self._file = file
        self._marks: dict[str, int] = {}

    def load(self, runs: Iterable[Overlay]) -> None:
        """Read the marks; the first time, all entries of *runs* count as read."""
        for name, value in self._file.rows("SELECT name, value FROM facts WHERE name >= 'read/' AND name < 'read0'"):
            self._marks[name.removeprefix("read/")] = self._file.unlock(value, f"facts/{name}", int)
        if self._file.fact("reads", bool):
            return
        with self._file.writing():
            for run in runs:
                self.keep(run.id, run.entries)
            self._file.keep("reads", value=True)

    def keep(self, run: str, number: int) -> None:
        """Store that the user has read a run up to an entry."""
        if number > self._marks.get(run, 0):
            self._file.keep(f"read/{run}", number)
            self._marks[run] = number

    def unread(self, run: Overlay) -> int:
        """Return the number of entries after the mark that no person released: replies, and what was auto-sent."""
        mark = self._marks.get(run.id, 0)
        count = 0
        for entry in reversed(run.timeline):
            if entry.number <= mark:
                break
            count += entry.role == "remote_agent" or entry.label == "auto_sent"
        return count
