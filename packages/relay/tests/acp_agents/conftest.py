"""Real agents, installed from npm's registry, and models that they can do without an account: `make test-acp`."""

import os
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from a2a_install import UnreachableError, install
from acp_agents.models import ModelServer
from remit.agents.program import FOR_USER_PROGRAMS, Program
from remit_relay.bridge.acp import AcpAgent

HERE = Path(__file__).resolve().parent

Make = Callable[..., AcpAgent]


@pytest.fixture(scope="session")
def node() -> str:
    try:
        return str(install(HERE))
    except UnreachableError as error:
        pytest.skip(f"the agents cannot be installed, because npm reaches no registry: {error}")


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
async def make(node: str, tmp_path: Path, project: Path) -> AsyncGenerator[Make, None]:
    """Return what makes an agent of a script, at home in a folder of its own; it is closed in the end."""
    made: list[AcpAgent] = []
    folders = [name for name in FOR_USER_PROGRAMS if name == "HOME" or name.startswith("XDG_")]
    home = dict.fromkeys(folders, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    def make(script: Path, *args: str, env: dict[str, str] | None = None, **options: Any) -> AcpAgent:
        # Some start others with the node that is found.
        path = {"PATH": f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}"}
        given = {**home, **path, **(env or {})}
        program = Program(command=node, args=(str(script), *args), env=given, folder=str(project))
        made.append(AcpAgent("p-1", program, **options))
        return made[-1]

    yield make
    for agent in made:
        await agent.close()
