"""A device in a process of its own, which is killed in the middle of whatever it does.

Reads one order a line on stdin, and forks for each: the child opens the device, does what it is told, and writes down
each thing that it has done. It kills itself with SIGKILL before the statement with the given number, or has the kernel
end it after so many microseconds, wherever it then is, or lives. So it can be killed hundreds of times a minute.

What it opens, seals or settles one after another it may do together, as a host does: each whole or not at all, in one
commit, and nothing is written down before that.
"""

import json
import os
import signal
import sys
from base64 import b64decode, b64encode
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import remit_relay.e2e.account
from remit.stores.connection import SqliteConnection
from remit_relay.device.identity import PreKey
from remit_relay.device.state import DeviceFile, open_keys
from remit_relay.e2e.account import Device
from remit_relay.e2e.channel import MessageCipher, RejectedMessageError

# What may be forgotten to be written down, because doing it again changes nothing.
TOGETHER = ("sent", "open", "seal")


class Dying:
    """A connection that ends the process at one of its statements, be it the one that commits."""

    def __init__(self, connection: SqliteConnection, left: int) -> None:
        self._connection = connection
        self._left = left

    def execute(self, *arguments: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._connection.execute(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def work(order: dict[str, Any]) -> None:
    home = Path(order["home"])
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def tell(answer: Any) -> None:
        os.write(log, json.dumps(list(answer)).encode() + b"\n")

    # By default this signal ends a process as SIGKILL does: at once, and with nothing tidied up.
    signal.setitimer(signal.ITIMER_REAL, order["die_after_us"] / 1_000_000)
    state = DeviceFile.open(home / "device.db", open_keys(home / "device.key"), "process")
    state._connection = cast(SqliteConnection, Dying(state._connection, order["die_at"]))  # pyright: ignore[reportPrivateUsage]
    device = Device.load(state)
    assert device is not None
    sealer, peer = MessageCipher(device), order["peer"]

    def perform(deed: list[Any]) -> Any:
        match deed:
            case ["seal", message, text]:
                sealer.seal(peer, text.encode(), message=message)
                return None
            case ["begin", device_id, use, key, signature]:
                prekey = PreKey(device=device_id, use=use, key=bytes.fromhex(key), signature=bytes.fromhex(signature))
                sealer.begin(peer, prekey)
                return None
            case ["open", sealed]:
                sealer.open(peer, b64decode(sealed))
                return "opened"
            case ["sent", number]:
                sealer.sent(number)
                return None
            case ["acknowledge"]:
                return sealer.acknowledge(peer)
            case ["take"]:
                opened = sealer.inbox()
                tell([each.id, each.body.decode()] for each in opened)
                sealer.taken(*(each.id for each in opened))
                return None
            case ["outbox"]:
                return [[each.id, b64encode(each.sealed).decode()] for each in sealer.outbox(limit=40)]
            case ["unsettled"]:
                return sealer.unsettled(peer)
            case _:
                raise ValueError(deed)

    def refused(deed: list[Any]) -> Any:
        try:
            with state.apart() if state.is_writing else nullcontext():
                return perform(deed)
        except RejectedMessageError as error:
            return error.reason

    for together, deeds in groupby(order["deeds"], lambda deed: order["together"] and deed[0] in TOGETHER):
        if together:
            with state.writing():
                answers = [refused(deed) for deed in deeds]
            for each in answers:
                tell([each])
        else:
            for deed in deeds:
                tell([refused(deed)])


def main() -> None:
    remit_relay.e2e.account.olm()  # once, for all children
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            work(json.loads(line))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
