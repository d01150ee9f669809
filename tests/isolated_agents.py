"""Agents that tests run in processes of their own: importable by name, like those of any program."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from remit.policy.aggregate import Blend
from remit.ports.brief import Brief
from remit.protocol.envelope import Answer, Call, ContextFilter, Json
from remit.protocol.errors import Code, RemitError, fault

# ── that answer ───────────────────────────────────────────────────────────────────────────────────────────────────────


def tell_pid(brief: Brief) -> int:
    return os.getpid()


async def tell_pid_async(brief: Brief) -> int:
    return os.getpid()


def echo(brief: Brief) -> Json:
    return brief.input


def find_by_email(brief: Brief) -> str:
    """Use a tool with what it was told, and say what it saw of both so that no token in it is one any more."""
    customer = brief.wait(brief.use("find", email=brief.text))
    return f"{brief.text} {customer}".replace("[", "<")


def tell_brief(brief: Brief) -> dict[str, Json]:
    return {
        "request": brief.request,
        "tools": sorted(brief.tools),
        "original_request": brief.original_request,
        "traceparent": brief.traceparent,
        "available_delegates": brief.available_delegates,
        "time_left_ms": brief.time_left_ms(),
        "tokens_left": brief.tokens_left(),
    }


async def _keep_back(brief: Brief) -> AsyncIterator[int]:
    """Yield what is left while 500 tokens are kept back, before and after the hub reports it, and once they are not."""
    brief.keep_back(500)
    yield brief.tokens_left()
    await brief.state()
    yield brief.tokens_left()
    brief.keep_back(0)
    yield brief.tokens_left()


async def speak(brief: Brief) -> dict[str, Json]:
    brief.say("It is")
    brief.note("decision", "tea")
    brief.record_tool_use("grep", {"for": "x"}, duration_ms=12)
    brief.record_tool_use("odd", object(), error="no")
    history = await brief.history(ContextFilter(last_messages=3), max_tokens=500)

    async def find() -> str:
        return "found"

    return {
        "delegates": [[each.name, each.description, each.capabilities] for each in brief.delegates],
        "tools": [card.name for card in brief.tool_cards],
        "history": [[message.seq, message.text] for message in history],
        "state": [await brief.state(), await brief.update_state(m=[2])],
        "once": [await brief.once("known", find), await brief.once("new", find)],
        "sure": await brief.confirm("Sure?"),
        "sampled": await brief.sample("Say it.", system="Be brief.", max_tokens=9),
        "more_tokens": [await brief.more_tokens(wanted) for wanted in (500, 2_000)],
        "kept_back": [left async for left in _keep_back(brief)],
        "filled": [await brief.fill(each, {"properties": {"n": {"type": "integer"}}}) for each in ("How many?", "No?")],
    }


def answer_in_full(brief: Brief) -> Answer:
    return Answer({"n": 1}, summary="one", confidence=0.5, unfinished=("two",))


async def pass_files_on(brief: Brief) -> Answer:
    reply = await brief.delegate("reader", objective="Read", files=brief.files)
    return Answer(reply.result, files=(*brief.files, *reply.files))


def forward(brief: Brief) -> list[Call]:
    return [Call(target="left"), Call(target="right", max_tokens=7)]


def shout(brief: Brief) -> str:
    print("x" * 1_000_000)
    print("y" * 1_000_000, file=sys.stderr)
    return "hoarse"


class Clinic:
    @staticmethod
    def treat(brief: Brief) -> str:
        return "treated"


# ── that ask for something ────────────────────────────────────────────────────────────────────────────────────────────


async def delegate(brief: Brief) -> Json:
    reply = await brief.delegate("tag", objective="Categorize", input={"n": [1]}, max_tokens=40, tools={"clock"})
    return [reply.status, reply.result, reply.usage.total, brief.tokens_left()]


def delegate_and_wait(brief: Brief) -> Json:
    return brief.wait(brief.delegate("tag", objective="Categorize")).result


async def delegate_two_at_once(brief: Brief) -> Json:
    one, two = await asyncio.gather(brief.delegate("one"), brief.delegate("two"))
    return [one.result, two.result]


async def delegate_and_tell_pid(brief: Brief) -> int:
    await brief.delegate("tag")
    return os.getpid()


async def delegate_several(brief: Brief) -> Json:
    fan = await brief.fan_out([Call(target="one"), Call(target="two")])
    chain = await brief.chain([Call(target="three"), Call(target="four")])
    combined = await brief.combine([Call(target="five")], strategy="first-success")
    return [response.result for response in (*fan, *chain, *combined.used)]


async def combine(brief: Brief) -> Json:
    names = ("slow", "quick"), ("blog", "timetable")
    racing, telling = ([Call(target=name, objective="look") for name in several] for several in names)

    async def blend(_: Blend) -> str:
        return "The departure is 9:40."

    first = await brief.combine(racing, strategy="first-success")
    left = brief.tokens_left()
    combined = await brief.combine(telling, strategy="ai-blend", blend=blend)
    (conflict,) = combined.conflicts
    unsayable = await brief.combine([Call(target="tag", input=object())])
    assert first.answer is not None
    assert combined.answer is not None
    assert unsayable.fault is not None
    try:
        await brief.combine(telling, strategy="majority")
        unknown = ""
    except RemitError as error:
        unknown = error.fault.code
    return {
        "first": [first.answer.result, [each.status for each in first.responses], left],
        "conflict": [conflict.path, conflict.preferred, conflict.values],
        "blended": combined.answer.result,
        "unsayable": [unsayable.fault.code, unsayable.answer],
        "unknown": unknown,
    }


async def delegate_nonsense(brief: Brief) -> Json:
    unsayable = await brief.delegate("tag", input=object())
    mistyped = await brief.delegate("tag", max_tokens="many")  # pyright: ignore[reportArgumentType]
    assert unsayable.fault is not None
    return [unsayable.status, unsayable.fault.code, mistyped.result]


async def delegate_and_give_up(brief: Brief) -> Json:
    ends: list[str] = []
    for patience in (0, 0.01):
        try:
            async with asyncio.timeout(patience):
                await brief.delegate("nobody-answers")
        except TimeoutError:
            ends.append("gave up")
    return ends


async def answer_without_waiting(brief: Brief) -> Json:
    task = asyncio.ensure_future(brief.delegate("nobody-answers"))
    await brief.use("wait-for-delegation")
    forgotten.add(task)
    return os.getpid()


forgotten: set[object] = set()


async def use(brief: Brief) -> Json:
    return await brief.use("add", one=1, two=2)


async def use_hundreds_at_once(brief: Brief) -> Json:
    return sum(await asyncio.gather(*(brief.use("add", one=n, two=0) for n in range(1_000))))


async def use_what_is_forbidden(brief: Brief) -> Json:
    try:
        await brief.use("rocket")
    except RemitError as error:
        return error.fault.code
    raise AssertionError


async def pay_with_own_tool(brief: Brief) -> Json:
    """Pay each amount with a tool of its own, into a file; an amount that is too high fails."""
    ledger, begun = Path(str(brief.input)), asyncio.Event()

    async def pay(arguments: dict[str, Json]) -> Json:
        if arguments["amount"] == 3:
            raise ValueError("the drawer is stuck")
        if arguments["amount"] == 4:
            begun.set()
            await asyncio.Event().wait()
        with ledger.open("a", encoding="utf-8") as file:
            file.write(f"{arguments['amount']} by {os.getpid()}\n")
        return f"paid {arguments['amount']}"

    async def one(amount: int) -> Json:
        using = asyncio.create_task(brief.use_own_tool("pay", {"amount": amount}, pay))
        if amount == 4:
            await begun.wait()
            using.cancel()
        try:
            return await using
        except RemitError as error:
            return error.fault.code
        except (ValueError, asyncio.CancelledError) as error:
            return f"{type(error).__name__}: {error}"

    return [await one(amount) for amount in range(1, 7)]


async def use_what_gives_too_much(brief: Brief) -> Json:
    try:
        await brief.use("flood")
    except RemitError as error:
        return error.fault.code
    raise AssertionError


async def use_unpriced(brief: Brief) -> str:
    """Call a model whose price only the hub could know."""
    await brief.allow_unpriced("unheard-of")
    brief.spend(prompt=10, model="unheard-of")
    return "answered"


async def recall(brief: Brief) -> Json:
    records = await brief.conversation()
    return [await brief.facts(), [[record.seq, record.kind, type(record.body).__name__] for record in records]]


async def report(brief: Brief) -> Json:
    brief.progress("half", partial=Answer("a half", unfinished=("the rest",)))
    left = brief.spend(prompt=30, completion=12, cache_write=4, cache_read=5, model="acme:small")
    await brief.facts()
    return [left, brief.tokens_left()]


def overspend(brief: Brief) -> Json:
    brief.spend(prompt=brief.tokens_left())
    brief.spend(completion=1)
    return "unreachable"


kept: list[Brief] = []


async def use_an_old_brief(brief: Brief) -> Json:
    kept.append(brief)
    try:
        await kept[0].use("add", one=1, two=1)
    except RemitError as error:
        return error.fault.code
    return "first"


# ── that fail ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def fail_by_pid(brief: Brief) -> None:
    raise ValueError(f"by {os.getpid()}")


def fail(brief: Brief) -> None:
    raise ValueError("the sums do not add up")


async def fail_async(brief: Brief) -> None:
    raise ValueError("the sums do not add up")


def leave(brief: Brief) -> None:
    sys.exit("enough")


async def cancel_oneself(brief: Brief) -> None:
    raise asyncio.CancelledError("of my own accord")


def refuse(brief: Brief) -> None:
    raise RemitError(fault(Code.RATE_LIMITED, "not now", retry_after_ms=70))


def answer_with_an_object(brief: Brief) -> object:
    return {"it": object()}


def answer_mistyped(brief: Brief) -> Answer:
    return Answer("sure", confidence=7)


def flood(brief: Brief) -> str:
    return "x" * (17 * 1024 * 1024)


def die(brief: Brief) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_but_leave_a_fork_that_holds_the_channel(brief: Brief) -> None:
    if os.fork() == 0:
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGKILL)


def exit_at_once(brief: Brief) -> None:
    os._exit(3)


def say_garbage(brief: Brief) -> None:
    os.write(int(sys.argv[1]), b"\x00\x00\x00\x05hello")
    time.sleep(60)


def say_too_much(brief: Brief) -> None:
    os.write(int(sys.argv[1]), b"\x7f\xff\xff\xff")
    time.sleep(60)


# ── that do not stop ──────────────────────────────────────────────────────────────────────────────────────────────────


def sleep(brief: Brief) -> None:
    brief.progress(str(os.getpid()))
    time.sleep(60)


async def spin(brief: Brief) -> None:
    brief.progress(str(os.getpid()))
    while True:
        pass


def sleep_with_a_helper(brief: Brief) -> None:
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    brief.progress(str(helper.pid))
    time.sleep(60)


async def ignore_signals(brief: Brief) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    brief.progress(str(os.getpid()))
    time.sleep(60)


async def wait_for_others(brief: Brief) -> None:
    brief.progress(str(os.getpid()))
    await asyncio.gather(brief.delegate("nobody-answers"), brief.delegate("nobody-answers", objective="still not"))


def first_sleep_then_answer(brief: Brief) -> int:
    if brief.input == "sleep":
        sleep(brief)
    return os.getpid()


async def pass_a_failure_on(brief: Brief) -> object:
    if brief.text == "hello":
        return "hello"
    try:
        return (await brief.delegate("tracking", objective=brief.text)).unwrap()
    except RemitError as error:
        if brief.text == "as it is":
            raise
        raise LookupError("no parcel") from error


async def spend_on(brief: Brief) -> Json:
    limit, most = brief.cost_left(), 0
    for _ in range(100):
        most = brief.affordable(50, 50)
        brief.spend(prompt=50, completion=50)
        await brief.facts()
    return [limit, most]
