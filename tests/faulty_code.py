"""Agents whose code fails, at lines that tests look for."""

import asyncio
import json

from remit import Brief, Call, Code, RemitError, fault

SECRET = "the vault is behind the painting"


def look_up(name: str) -> str:
    raise LookupError(f"{name}: {SECRET}")


async def direct(brief: Brief) -> str:
    return look_up("rate")


def in_thread(brief: Brief) -> str:
    return look_up("rate")


async def in_library(brief: Brief) -> str:
    return json.loads(f"{{{SECRET}")


async def in_group(brief: Brief) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(direct(brief))


async def on_purpose(brief: Brief) -> None:
    raise RemitError(fault(Code.DELEGATION_FAILED, "the shop is closed"))


async def adapted(brief: Brief) -> str:
    try:
        return look_up("rate")
    except LookupError as error:
        raise RemitError(fault(Code.DELEGATION_FAILED, f"the model failed: {error}")) from error


async def careless(brief: Brief) -> str:
    return await brief.use("look_up", name="rate")


async def passing_on(brief: Brief) -> object:
    return (await brief.delegate("direct", objective="do it")).unwrap()


async def with_mail(brief: Brief) -> None:
    raise ValueError("no account for ada@example.org")


async def looking_on(brief: Brief) -> list[str]:
    """Say what it sees of the failures of those that it asks, and of a tool."""
    one = await brief.delegate("direct", objective="one")
    several = await brief.fan_out([Call(target="direct", objective="two")])
    combined = await brief.combine([Call(target="direct", objective="three")])
    try:
        await brief.use("look_up", name="rate")
    except RemitError as error:
        return [str(one.fault), str(several[0].fault), str(combined.responses[0].fault), str(error.fault)]
    return []


class Shy(Exception):
    pass


async def without_words(brief: Brief) -> None:
    raise Shy


async def stopping(brief: Brief) -> None:
    raise StopIteration
