"""The agents of a newsroom: an editor asks two researchers at once, and has what they found checked."""

import asyncio
import os
from pathlib import Path

from remit import Answer, Brief, Call, Usage

FACTS = {
    "harbour": "The harbour handled 812 ships in May.",
    "ferry": "The new ferry carries 340 passengers.",
}
# Long enough that a hub can be killed in the middle of it.
WORK_S = 2.0
# If a hub is killed, another one takes its work over once the lease has ended; a busy machine needs more than 30 s.
RESEARCH_MS = 120_000


async def editor(brief: Brief) -> Answer:
    """Ask for each subject, have the findings checked, and put them together."""
    calls = [Call(target="researcher", objective=each, deadline_ms=RESEARCH_MS) for each in FACTS]
    replies = await brief.fan_out(calls)
    text = " ".join(str(each.unwrap()) for each in replies)
    checked = await brief.delegate("checker", objective="Check it", input=text)
    return Answer(f"{text} {checked.unwrap()}", usage=Usage(prompt=200, completion=40))


async def researcher(brief: Brief) -> Answer:
    """Look a subject up; a file says which process does so."""
    brief.progress(f"looking up {brief.text}")
    (Path("begun") / f"{brief.text}-{os.getpid()}").touch()
    await asyncio.sleep(WORK_S)
    return Answer(FACTS[brief.text], usage=Usage(prompt=500, completion=30))


async def checker(brief: Brief) -> Answer:
    """Count the figures in a text."""
    figures = [word for word in str(brief.input).split() if word.isdecimal()]
    return Answer(f"({len(figures)} figures were checked.)", usage=Usage(prompt=120, completion=10))
