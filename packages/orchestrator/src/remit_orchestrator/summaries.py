"""Summaries and notes of conversations: by rules, or by a model as far as the conversation carries its text."""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from remit.ports import Store, Summarizer, TokenCounter
from remit.ports.agents import Payer
from remit.protocol.codec import encode
from remit.protocol.envelope import ContextFilter, Message, Note
from remit.words.components import Component
from remit_orchestrator.text.faithfulness import check, nearest
from remit_orchestrator.text.grounding import unfounded
from remit_orchestrator.text.summaries import Summary, answer_note, extend, notes_of, written

log = logging.getLogger("remit")

# A summary is read before everything else: a longer one would be a conversation of its own.
SUMMARY_TOKENS = 600
# At most this much is read of a conversation that was never summarized.
_MOST_TOKENS = 100_000

_EVERYTHING = ContextFilter()
_read_summary = msgspec.json.Decoder(Summary).decode
_read_model_summary = msgspec.json.Decoder(tuple[int, str]).decode


class Summaries:
    """The summaries and notes that are read from one hub's conversations."""

    def __init__(self, store: Store, summarizer: Summarizer | None, count: TokenCounter) -> None:
        self._store = store
        self._summarizer = summarizer
        self._count = count

    async def summary(self, session: str, payer: Payer | None) -> str:
        """Return the summary of a conversation so far; without a *payer* no model is asked."""
        summary = await self._brought_up(session)
        plain = written(summary)
        if self._summarizer is None or payer is None or not plain:
            return plain
        return await self._model_summary(session, summary, payer, self._summarizer) or plain

    def notes(self, text: str, question: str) -> list[Note]:
        """Return the decisions and demands in a user's text, and its answer if the user was asked something."""
        answer = answer_note(question, text) if question else None
        return [*notes_of(text), *(() if answer is None else (answer,))]

    async def _brought_up(self, session: str) -> Summary:
        key = f"summary {session}"
        kept = await self._store.get(key)
        revision, summary = (0, Summary()) if kept is None else (kept[0], _read_summary(kept[1]))
        messages = await self._store.messages(session, _EVERYTHING, now_ms=0, tokens=_MOST_TOKENS)
        fresh = [message for message in messages if message.seq > summary.seq]
        if fresh:
            summary = await asyncio.to_thread(extend, summary, fresh)
            await self._store.cas(key, revision, encode(summary))  # whoever else did the same got the same result
        return summary

    async def _model_summary(self, session: str, summary: Summary, payer: Payer, summarize: Summarizer) -> str:
        """Return what the conversation carries of a model's summary; an empty text if that is not enough."""
        key = f"told {session}"
        kept = await self._store.get(key)
        if kept is not None:
            seq, text = _read_model_summary(kept[1])
            if seq == summary.seq:
                return text
        messages = await self._store.messages(session, _EVERYTHING, now_ms=0, tokens=_MOST_TOKENS)
        source = "\n".join(f"{message.name or message.role}: {message.text}" for message in messages)
        if self._count(source) + SUMMARY_TOKENS > payer.left:
            return ""
        try:
            text, usage = await summarize(source, SUMMARY_TOKENS)
        except Exception as error:  # noqa: BLE001 - a foreign model: the summary by rules remains
            log.warning("the model failed to make a summary (%s)", type(error).__name__)
            return ""
        payer.meter(usage)
        # Stored even if it is empty: asking again would cost the same again.
        text = await asyncio.to_thread(_check_summary, text, source, messages, summary)
        await self._store.cas(key, 0 if kept is None else kept[0], encode((summary.seq, text)))
        return text


def _check_summary(text: str, source: str, messages: Sequence[Message], summary: Summary) -> str:
    """Return a model's summary without what the conversation does not carry; empty if a decision or demand is lost."""
    if wrong := unfounded(text, source):
        log.warning("a model's summary was rejected: %d of its names and numbers are unfounded", len(wrong))
        return ""
    sources = [Component(str(place), message.text) for place, message in enumerate(messages)]
    # There is no second reader: what is compared is what rules can tell.
    checked = check(text, sources, complete=False, quotes=nearest(text, sources))
    essential = [Component(str(place), each) for place, each in enumerate((*summary.decisions, *summary.constraints))]
    lost = check(checked.text, essential, quotes=nearest(checked.text, essential)).missing
    if checked.objections or lost:
        log.warning(
            "a model's summary %s: %d of its sentences are unfounded, %d decisions or demands are missing",
            "was rejected" if lost or not checked.text else "was shortened",
            len(checked.objections),
            len(lost),
        )
    return "" if lost else checked.text
