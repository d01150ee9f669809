"""A process that writes logins until it is killed, and says so after each: `python login_writer.py FOLDER`."""

import asyncio
import sys
from itertools import count
from pathlib import Path

from remit_models.mcp.logins import LoginFile, StoredLogin


async def main(folder: str) -> None:
    file = LoginFile(Path(folder), "far")
    for number in count():
        token = f"{number}-" + "x" * 20_000
        login = StoredLogin(url="https://x", issuer="https://y", access_token=token, refresh_token=token)
        async with file.locked():
            file.write(login)
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
