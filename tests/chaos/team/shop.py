"""The agents of the chaos runs, which keep a ledger of what they did outside of Remit.

A line of the ledger is on disk before the next step: what an agent did is known however its process ends.
"""

import asyncio
import ctypes
import json
import os
import random
import secrets
import signal
import sys
import time

from remit import Brief, Call, Response

_LEDGER = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
_BY = f"{os.environ['CHAOS_HUB']} {os.getpid()}"

if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no hub outlives the chaos run
if shift_s := float(os.environ.get("CHAOS_SHIFT_S", "0")):
    _right, _right_ns = time.time, time.time_ns
    time.time = lambda: _right() + shift_s
    time.time_ns = lambda: _right_ns() + round(shift_s * 1e9)


def note(kind: str, request: str, **more: object) -> None:
    """Append a line to the ledger: one write, so that it is there whole or not at all."""
    line = {"kind": kind, "request": request, "at": time.monotonic(), "by": _BY, **more}
    os.write(_LEDGER, json.dumps(line).encode() + b"\n")
    os.fsync(_LEDGER)


def began(brief: Brief) -> None:
    request, grant = brief.request, brief.tokens_left()
    note("began", brief.objective, agent=request.target, call=request.id, parent=request.parent or "", tokens=grant)


def log_reply(brief: Brief, reply: Response) -> None:
    """Note what a callee's outcome is called."""
    code = "" if reply.fault is None else str(reply.fault.code)
    note("heard", brief.objective, call=reply.id, parent=brief.request.id, status=str(reply.status), code=code)


async def till(brief: Brief) -> str:
    """Charge once for each request."""
    began(brief)
    await asyncio.sleep(random.random() * 0.2)
    receipt = secrets.token_hex(6)
    note("charged", brief.objective, agent=brief.request.target, call=brief.request.id, receipt=receipt)
    await asyncio.sleep(random.random() * 0.2)
    return receipt


async def pay(request: str) -> str:
    """Charge once; a tool that is not safe to repeat."""
    receipt = secrets.token_hex(6)
    note("charged", request, agent="careful", receipt=receipt)
    await asyncio.sleep(random.random() * 0.1)
    return receipt


async def careful(brief: Brief) -> object:
    began(brief)
    await asyncio.sleep(random.random() * 0.2)
    return await brief.use("pay", request=brief.objective)


async def boss(brief: Brief) -> object:
    """Have the agent that the input names do it."""
    began(brief)
    reply = await brief.delegate(str(brief.input), objective=brief.objective)
    log_reply(brief, reply)
    await asyncio.sleep(random.random() * 0.1)
    return reply.unwrap()


async def planner(brief: Brief) -> int:
    """Have three agents spend at once, and then one after another for as long as something is left."""
    began(brief)
    calls = [Call(target="spender", objective=brief.objective, input=number) for number in range(3)]
    for reply in await brief.fan_out(calls):
        log_reply(brief, reply)
    for number in range(3, 6):
        reply = await brief.delegate("spender", objective=brief.objective, input=number)
        log_reply(brief, reply)
    return 0


async def spender(brief: Brief) -> int:
    """Spend without looking ahead, so that the last call may be one too much."""
    began(brief)
    for _ in range(random.choice((1, 3, 9, 27))):
        if brief.tokens_left() <= 0:
            break
        tokens = random.randint(5, 40)
        note("spent", brief.objective, agent="spender", call=brief.request.id, tokens=tokens)
        brief.spend(prompt=tokens)
        await asyncio.sleep(random.random() * 0.05)
    return 0


async def patient(brief: Brief) -> str:
    """Wait to be cancelled."""
    began(brief)
    await asyncio.sleep(3_600)
    return "never"


async def poison(brief: Brief) -> str:
    began(brief)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"
