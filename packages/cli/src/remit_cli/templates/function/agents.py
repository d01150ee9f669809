"""The agents of this team: plain functions. Put a model, a database or a web service behind them whenever you like."""

import re
from collections import Counter

from remit import Answer, Brief, Call

# Words that say nothing about what a text is about.
COMMON = {"a", "an", "and", "are", "as", "at", "be", "by", "for", "in", "is", "it", "my", "of", "on", "or", "the", "to"}


async def assistant(brief: Brief) -> Answer:
    """Ask the other two at once, and put together what they say."""
    text = brief.text
    counted, read = await brief.fan_out(
        [
            Call(target="counter", objective="Count what is in this text", input=text),
            Call(target="reader", objective="Say what this text is about", input=text),
        ]
    )
    # A call always ends in a response, also if it was refused or took too long: `ok` says whether there is a result.
    sizes = counted.result if counted.ok else "not counted"
    topics = ", ".join(read.result) if read.ok else "not read"
    return Answer(f"{sizes}; about: {topics}", confidence=0.9 if counted.ok and read.ok else 0.3)


async def counter(brief: Brief) -> str:
    """Count letters, words and sentences."""
    words = re.findall(r"\w+", brief.text)
    sentences = [part for part in re.split(r"[.!?]+", brief.text) if part.strip()]
    return f"letters {sum(map(len, words))}, words {len(words)}, sentences {len(sentences)}"


async def reader(brief: Brief) -> list[str]:
    """Return up to three words that the text is about: the most frequent, and of those the longest."""
    words = Counter(word for word in re.findall(r"\w+", brief.text.lower()) if word not in COMMON)
    return sorted(words, key=lambda word: (-words[word], -len(word), word))[:3]
