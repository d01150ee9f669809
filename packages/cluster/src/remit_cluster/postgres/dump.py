"""Runs the programs of PostgreSQL that copy a database: pg_dump and pg_restore."""

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from remit.protocol.errors import Code, fault
from remit.runtime.ports import StoreError
from remit_cluster.postgres.connection import DatabaseAddress

Program = Literal["pg_dump", "pg_restore"]

# Where Debian keeps the programs of each version.
DEBIAN = Path("/usr/lib/postgresql")

_VERSION = re.compile(rb"\(PostgreSQL\) (\d+)")


def _candidates(name: Program) -> Iterator[str]:
    if (found := shutil.which(name)) is not None:
        yield found
    yield from map(str, sorted(DEBIAN.glob(f"*/bin/{name}"), reverse=True))


async def program(name: Program, server: int) -> str:
    """Return the path of a program that is not older than the server, or raise `StoreError`."""
    newest = 0
    for path in _candidates(name):
        process = await asyncio.create_subprocess_exec(path, "--version", stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        version = int(found[1]) if (found := _VERSION.search(said)) else 0
        if version >= server:
            return path
        newest = max(newest, version)
    why = f"{name} here has version {newest}" if newest else f"{name} is not installed here"
    advice = f"Install the client programs of PostgreSQL {server} or newer (Debian: postgresql-client-{server})."
    message = f"{why}, and the server has version {server}"
    raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion=advice))


def _without_password(address: DatabaseAddress) -> tuple[str, str | None]:
    """Return the address without a password, which others could see among the arguments, and the password."""
    scheme, _, rest = address.url.partition("://")
    place, slash, name = rest.partition("/")
    credentials, at, hosts = place.rpartition("@")
    user, colon, password = credentials.partition(":")
    return f"{scheme}://{user}{at}{hosts}{slash}{name}", unquote(password) if colon else address.password


async def run(path: str, address: DatabaseAddress, *arguments: str) -> None:
    """Run a program for a database, or raise `StoreError` with what it said; the password is in its environment."""
    url, password = _without_password(address)
    environ = dict(os.environ) if password is None else {**os.environ, "PGPASSWORD": password}
    process = await asyncio.create_subprocess_exec(
        *(path, "--dbname", url, *arguments),
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        last = said.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        message = f"{address.name}: {Path(path).name} failed: {last[0]}"
        raise StoreError(fault(Code.STORE_UNAVAILABLE, message, suggestion="Correct what it names; then try again."))
