"""Runs tests in several processes that are forked once everything is collected.

Collecting takes longer than most of the tests: it is done once, and not again by each process (as pytest-xdist does).
"""

import atexit
import os
import random
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from _pytest.config import create_terminal_writer
from _pytest.tmpdir import TempPathFactory

# What takes longest begins first, so that no process is left alone with it at the end.
_LONGEST = (
    "packages/server/tests/console",
    "tests/examples",
    "tests/test_benchmarks.py",
    "packages/models/tests/mcp_conformance",
    "tests/simulate",
    "tests/chaos",
    "packages/server/tests/test_openapi.py",
    "packages/server/tests/client",
    "tests/test_wheel.py",
)


class _Worker:
    """A process that runs one test after another, as it is told to."""

    def __init__(self, session: pytest.Session, number: int, others: "list[_Worker]") -> None:
        self.queue: deque[int] = deque()
        self.running: int | None = None
        self.trouble = ""
        self.connection, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            # Each sees the end of the process that began the run only if no other one holds its connection open.
            for each in (self, *others):
                each.connection.close()
            _run(session, theirs, number)
        theirs.close()

    def ended(self) -> int:
        """Return how the process ended, once it has."""
        self.connection.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Crew:
    """The processes of a test run, and the tests that no process has begun."""

    def __init__(self, session: pytest.Session, size: int) -> None:
        self._session = session
        self._size = size
        self._started = 0
        self._workers: list[_Worker] = []
        # The tests of a module stay together, for what they share, and all that need a browser: each process has one.
        groups = defaultdict[Any, deque[int]](deque)
        for index, item in enumerate(session.items):
            needs_browser = "chromium_address" in getattr(item, "fixturenames", ())
            groups["browser" if needs_browser else item.path].append(index)
        self._groups = deque(sorted(groups.values(), key=self._rank))

    def _rank(self, group: deque[int]) -> int:
        name = self._session.items[group[0]].nodeid
        return next((place for place, prefix in enumerate(_LONGEST) if name.startswith(prefix)), len(_LONGEST))

    def run(self) -> None:
        """Run all tests; a process that dies fails the test that it ran, and another one takes its place."""
        for _ in range(min(self._size, len(self._session.items))):
            self._start()
        try:
            while self._workers:
                ready = wait([worker.connection for worker in self._workers])
                for worker in [each for each in self._workers if each.connection in ready]:
                    self._hear(worker)
        finally:
            for worker in self._workers:
                worker.ended()  # it sees that nobody is there any more
        for stop in (self._session.shouldfail, self._session.shouldstop):
            if stop:
                raise (self._session.Failed if stop is self._session.shouldfail else self._session.Interrupted)(stop)

    def _start(self) -> None:
        self._started += 1
        worker = _Worker(self._session, self._started, self._workers)
        self._workers.append(worker)
        self._tell(worker)

    def _tell(self, worker: _Worker) -> None:
        """Give the worker its next test, and which one it has after that; fixtures stay for what both use."""
        self._fill(worker)
        worker.running = worker.queue.popleft() if worker.queue else None
        self._fill(worker)
        following = worker.queue[0] if worker.queue else None
        with suppress(BrokenPipeError):  # its death is heard
            worker.connection.send((worker.running, following))

    def _fill(self, worker: _Worker) -> None:
        if worker.queue or self._session.shouldfail or self._session.shouldstop:
            return
        if self._groups:
            worker.queue = self._groups.popleft()
            return
        # Half of the longest queue, except for what its worker was told to prepare for.
        longest = max(self._workers, key=lambda each: len(each.queue))
        taken = [longest.queue.pop() for _ in range(len(longest.queue) // 2)]
        worker.queue.extend(reversed(taken))

    def _hear(self, worker: _Worker) -> None:
        config = self._session.config
        try:
            kind, content = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._workers.remove(worker)
            code = worker.ended()
            if worker.running is not None:
                item = self._session.items[worker.running]
                message = f"the process of this test ended with {code}\n{worker.trouble}"
                report = pytest.TestReport(item.nodeid, item.location, {}, "failed", message, "call")
                config.hook.pytest_runtest_logreport(report=report)
                if worker.queue:
                    self._groups.appendleft(worker.queue)
                if self._groups:
                    self._start()
            return
        if kind == "trouble":
            worker.trouble = content
            return
        if kind == "report":
            report = config.hook.pytest_report_from_serializable(config=config, data=content)
            config.hook.pytest_runtest_logreport(report=report)
            return
        assert worker.running is not None
        if content is not None:
            item = self._session.items[worker.running]
            passed = pytest.TestReport(item.nodeid, item.location, {}, "passed", None, "call", duration=content)
            config.hook.pytest_runtest_logreport(report=passed)
        if self._session.shouldfail or self._session.shouldstop:
            worker.queue.clear()
        self._tell(worker)


class _Reporter:
    """Tells the process that began the run what came of each test; of one that passed, only how long it took."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self.passed_in_s: float | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "passed" and not hasattr(report, "wasxfail"):
            if report.when == "call":
                self.passed_in_s = report.duration
            return
        content = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", content))


def _run(session: pytest.Session, connection: Connection, number: int) -> NoReturn:
    """Run tests until there are none."""
    code = 1
    try:
        _become(session.config, number)
        reporter = _Reporter(session.config, connection)
        session.config.pluginmanager.register(reporter)
        for index, following in _tasks(connection):
            item, next_item = session.items[index], None if following is None else session.items[following]
            reporter.passed_in_s = None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            connection.send(("done", reporter.passed_in_s))
        code = 0
    except (EOFError, OSError, KeyboardInterrupt, pytest.exit.Exception):
        pass  # nobody waits for it any more
    except BaseException:  # noqa: BLE001 - the task of this process ends here
        connection.send(("trouble", traceback.format_exc()))
    finally:
        # As an interpreter does that ends, without the end of the session, which is not that of this process.
        threading._shutdown()  # pyright: ignore
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        os._exit(code)


def _tasks(connection: Connection) -> Iterator[tuple[int, int | None]]:
    while (task := connection.recv())[0] is not None:
        yield task


def _become(config: pytest.Config, number: int) -> None:
    """Have what the processes must not share: captured output, the terminal, a folder, chance."""
    capturing: Any = config.pluginmanager.getplugin("capturemanager")
    capturing.stop_global_capturing()
    capturing.start_global_capturing()
    terminal: Any = config.pluginmanager.getplugin("terminalreporter")
    terminal._tw = create_terminal_writer(config, Path(os.devnull).open("w"))  # noqa: SIM115 - until this process ends
    factory = cast("TempPathFactory", config._tmp_path_factory)  # pyright: ignore
    folder = factory.getbasetemp() / f"worker{number}"
    folder.mkdir(mode=0o700)
    factory._basetemp = folder  # pyright: ignore[reportPrivateUsage]
    random.seed()


def run_tests(session: pytest.Session, processes: int) -> bool:
    """Run the collected tests of a session, as pytest does in one process."""
    if session.testsfailed and not session.config.option.continue_on_collection_errors:
        raise session.Interrupted(f"{session.testsfailed} errors during collection")
    if session.config.option.collectonly or not session.items:
        return True
    session.config._tmp_path_factory.getbasetemp()  # pyright: ignore
    Crew(session, processes).run()
    return True
