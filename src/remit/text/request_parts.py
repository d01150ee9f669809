"""The parts of a request: where a text may begin to ask for something else."""

import re

# Each part costs a classification, and nobody asks for more than this at once.
MOST_PARTS = 8
# A request is usually stated in the first paragraphs; the rest is the material to work on.
_LONGEST_TEXT = 2_000
# A shorter part is not a request by itself: `as a PDF`, `for me`, `Dr.`.
_FEWEST_WORDS = 3
_BULLET = re.compile(r"(?:[-*•–]|\(?\d{1,2}[.)]) ")
_BETWEEN = re.compile(
    r"(?<=[.!?]) |(?<=[.!?][\"')]) |(?<=[。！？；])|; "
    r"|,? (?:and|und|et|y|e|en) (?:then|also|after that|afterwards|finally|dann|danach|auch|außerdem|anschließend"
    r"|puis|ensuite|aussi|luego|después|también|poi|dopo|anche|depois|também|dan|daarna|ook)\b,? "
    r"|, (?:then|also|plus|dann|danach|puis|ensuite|luego|después|poi|depois|daarna) "
    r"|,? (?:and|und|et|y|e) ",
    re.IGNORECASE,
)
# A character of a script without spaces counts as a word.
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")


def parts(text: str) -> tuple[str, ...]:
    """Split a text where a new request may begin: list items, sentences, `and then`.

    A part that is too short to be a request stays with its neighbour.
    """
    found: list[str] = []
    for line in text[:_LONGEST_TEXT].splitlines():
        # With runs of spaces collapsed, the pattern takes linear time.
        for piece in _BETWEEN.split(_BULLET.sub("", " ".join(line.split()), count=1)):
            if found and (_is_short(piece) or _is_short(found[-1])):
                found[-1] = f"{found[-1]} {piece}".strip()
            else:
                found.append(piece)
    return tuple(filter(None, found[:MOST_PARTS]))


def _is_short(text: str) -> bool:
    return len(_WORD.findall(text)) < _FEWEST_WORDS
