"""Numbers that identify a person or an account: payment cards, social security numbers, telephones."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from remit.policy.verdict import Finding
from remit_redaction import context, phones
from remit_redaction.linear import find_narrow, find_without_letters, linear_pattern
from remit_redaction.phones import Plan

# Up to three characters may stand between two digits: `) -`, ` - `, a line break and its indent.
_BETWEEN = rb"[\x00-\x20\-./()_]"
_RUN = re.compile(rb"[+(]{0,2}\d(?:" + _BETWEEN + rb"{0,3}+\d){5,}+")
_DIGITS = re.compile(rb"\d+")
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_FIGURES = frozenset(b"0123456789")
_COLON = ord(":")
_ONE = ord("1")
_OPENS = b"+("

_DATE = re.compile(
    # Written in full, also in an address: `/2024/03/15/report`, `/2024-03-15/10:30`.
    rb"(?<!\d)(?<!\d[./-])(?:(?:19|20)\d\d([-/.])(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])(?!\d)|"
    rb"(?:(?:19|20)\d\d([-/.])(?:0?[1-9]|1[0-2])\2(?:0?[1-9]|[12]\d|3[01])"
    rb"|(?:0?[1-9]|[12]\d|3[01])([-/.])(?:0?[1-9]|1[0-2])\3(?:19|20)?\d\d"
    rb"|(?:0?[1-9]|1[0-2])([-/.])(?:0?[1-9]|[12]\d|3[01])\4(?:19|20)?\d\d"
    rb"|(?:19|20)\d\d[-/](?:19|20)?\d\d)(?![./-]?\d))"
)
_EXTENSION = re.compile(rb"[ ,;]{0,2}(?:x|ext\.?|extension|durchwahl)[ .:]{0,2}\d{1,6}(?![0-9A-Za-z])", re.IGNORECASE)
_TRUNK_ZERO = re.compile(rb"\(0\)")
# Characters that join groups, so that one group alone is not a number of its own.
_HOLDS = frozenset({b"-", b".", b"/", b"_"})
_LINE = re.compile(rb"[\r\n]")

_CARD_GROUPS: dict[int, tuple[tuple[int, ...], ...]] = {
    4: ((4, 4, 4, 4, 3), (4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 2), (4, 4, 4), (4, 5, 6)),
    6: ((6, 13), (6, 10), (6, 9), (6, 6)),
    8: ((8, 8), (8, 4), (8, 5)),
}
_SHORTEST_CARD = 12
_LONGEST_CARD = 19
# A number of another length is a card number only with a word for it nearby: bar codes of thirteen digits also begin
# with 4.
_USUAL = frozenset({14, 15, 16, 19})
# The Luhn sum of each pair of digits (the second doubled, its digits added), so that no loop is needed.
_DOUBLED = bytes.maketrans(b"0123456789", bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))
_PLAIN = bytes.maketrans(b"0123456789", bytes(range(10)))


# Groups of a card with a separator that is also used in lists of other numbers.
_LIST_BEGINS = rb"\d{4}[,;|] ?\d{4,6}[,;|]"
_LISTED_CARD = re.compile(rb"\d{4}([,;|]) ?(?:(?:\d{4}\1 ?){2}\d{2,7}|\d{6}\1 ?\d{4,5})(?![0-9])")

Group = tuple[int, int]


def numbers(data: bytes, plan: Plan) -> Iterator[Finding]:
    """Find payment cards, SSN, ITIN, SIN, NHS and telephone numbers."""
    for run in find_without_letters(_RUN, data):
        groups = [digits.span() for digits in _DIGITS.finditer(data, *run.span())]
        glued = _glued_cards(data, groups)
        yield from glued
        glued_on = _trim(data, groups)
        if not groups:
            continue
        cards = [*glued, *_cards(data, groups)]
        yield from cards
        yield from _personal(data, groups)
        taken = {card.start: card.end for card in cards}
        for line in _lines(data, groups):
            if taken.get(line[0][0], 0) < line[-1][1]:
                yield from _phones(data, line, plan, glued_on=glued_on and line[0] == groups[0])
    yield from _listed_cards(data)


def _trim(data: bytes, groups: list[Group]) -> bool:
    """Remove digits that belong to a word or a time of day; return whether a word touches the rest."""
    start, end = groups[0][0], groups[-1][1]
    follows = end < len(data) and (
        (data[end] in _LETTERS and not _EXTENSION.match(data, end))
        or (data[end] == _COLON and end + 1 < len(data) and data[end + 1] in _FIGURES)
    )
    if follows:
        groups.pop()
    if not start or not groups:
        return False
    if data[start - 1] in _LETTERS or (data[start - 1] == _COLON and start > 1 and data[start - 2] in _FIGURES):
        groups.pop(0)
        return True
    return data[start - 1] in b"-_./" and start > 1 and data[start - 2] in _LETTERS


def _lines(data: bytes, groups: Sequence[Group]) -> Iterator[Sequence[Group]]:
    first = 0
    for place in range(1, len(groups)):
        if _LINE.search(data, groups[place - 1][1], groups[place][0]):
            yield groups[first:place]
            first = place
    yield groups[first:]


def _joined(data: bytes, groups: Sequence[Group]) -> bytes:
    return b"".join([data[start:end] for start, end in groups])


def _spans(groups: Sequence[Group]) -> Group:
    return groups[0][0], groups[-1][1]


# ── cards ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _glued_cards(data: bytes, groups: Sequence[Group]) -> list[Finding]:
    """Find cards that touch letters; so long a run of decimal digits is seldom part of a word."""
    (start, first), (last, end) = groups[0], groups[-1]
    touched = ({(start, first)} if data[start - 1 : start].isalpha() else set[Group]()) | (
        {(last, end)} if data[end : end + 1].isalpha() else set[Group]()
    )
    return [
        Finding(start, end, "CREDIT_CARD")
        for start, end in sorted(touched)
        if end - start in {15, 16} and is_card(data[start:end]) and not _is_fraction(data, (start, end))
    ]


def _is_fraction(data: bytes, group: Group) -> bool:
    """Return whether a decimal point joins the group to digits before or after it, so that both are one number."""
    start, end = group
    return (data[start - 1 : start] == b"." and data[start - 2 : start - 1].isdigit()) or (
        data[end : end + 1] == b"." and data[end + 1 : end + 2].isdigit()
    )


def _listed_cards(data: bytes) -> Iterator[Finding]:
    """Find cards whose groups are written as a list: `4111,1111,1111,1111`."""
    for start, _ in linear_pattern(_LIST_BEGINS).spans(data):
        match = _LISTED_CARD.match(data, start)
        if match is None or data[max(0, start - 1) : start].isdigit():
            continue
        if is_card(b"".join(_DIGITS.findall(match[0]))):
            yield Finding(*match.span(), "CREDIT_CARD")


def _cards(data: bytes, groups: Sequence[Group]) -> Iterator[Finding]:
    has_card = False
    sizes = [end - start for start, end in groups]
    place = 0
    while place < len(groups):
        taken = _card_at(data, groups, sizes, place)
        if taken:
            start, end = _spans(groups[place : place + taken])
            yield Finding(start, end, "CREDIT_CARD")
            has_card = True
        place += taken or 1
    if has_card or len(groups) == 1:
        return
    # Groups of other sizes are usually separate numbers: accept them only if nothing else follows up to the end of the
    # line.
    pieces = (groups, *_lines(data, groups)) if len(groups) <= 2 * _LONGEST_CARD else _lines(data, groups)
    for piece in pieces:
        if 1 < len(piece) <= _LONGEST_CARD and not (len(piece) == 2 and _is_fraction(data, piece[0])):
            digits = _joined(data, piece)
            between = {data[one[1] : other[0]] for one, other in pairwise(piece)}
            if b"." in between and len(between) > 1:  # decimal numbers: coordinates, sums
                continue
            if len(digits) <= _LONGEST_CARD and _is_card_here(data, piece, digits):
                start, end = _spans(piece)
                yield Finding(start, end, "CREDIT_CARD", 0.9)
                return


def _card_at(data: bytes, groups: Sequence[Group], sizes: Sequence[int], place: int) -> int:
    """Return how many groups from *place* on make up a card number."""
    size = sizes[place]
    if size > 11:
        start, end = groups[place]
        if size > _LONGEST_CARD or _is_fraction(data, groups[place]):
            return 0
        return 1 if _is_card_here(data, groups[place : place + 1], data[start:end]) else 0
    for shape in _CARD_GROUPS.get(size, ()):
        if tuple(sizes[place : place + len(shape)]) == shape:
            piece = groups[place : place + len(shape)]
            digits = _joined(data, piece)
            if _is_card_here(data, piece, digits):
                return len(shape)
    return 0


def _is_card_here(data: bytes, piece: Sequence[Group], digits: bytes) -> bool:
    """Return whether *digits* are a card number; with a word for it nearby, any issuer is accepted."""
    if not _SHORTEST_CARD <= len(digits) <= _LONGEST_CARD or not luhn(digits) or b"+" in _lead(data, piece[0][0]):
        return False
    if len(digits) in _USUAL and is_card(digits):
        return True
    words = context.before(data, piece[0][0]) + context.after(data, piece[-1][1])
    return context.CARD.search(words) is not None


def is_card(digits: bytes) -> bool:
    """Return whether *digits* have the length that their issuer uses, and a correct check digit."""
    return len(digits) in _issuer_lengths(digits) and luhn(digits)


def luhn(digits: bytes) -> bool:
    """Return whether the last of *digits* is the right check digit (ISO/IEC 7812).

    The function in stdnum takes ten times as long.
    """
    return (sum(digits[-1::-2].translate(_PLAIN)) + sum(digits[-2::-2].translate(_DOUBLED))) % 10 == 0


_VISA = frozenset({13, 16, 19})
_SIXTEEN = frozenset({16})
_FIFTEEN = frozenset({15})
_DINERS = frozenset({14, 16})
_UP_TO_19 = frozenset({16, 17, 18, 19})
_MAESTRO = frozenset({12, 13, 16})
_NONE: frozenset[int] = frozenset()


def _issuer_lengths(digits: bytes) -> frozenset[int]:
    """Return the lengths that the issuer with this prefix uses (ISO/IEC 7812 and the schemes' own ranges)."""
    if len(digits) < 12:
        return _NONE
    first, two, four = digits[0], digits[:2], digits[:4]
    if first == 52:
        return _VISA
    if first == 53:
        return _SIXTEEN if b"51" <= two <= b"55" else _MAESTRO if two in {b"50", b"56", b"57", b"58"} else _NONE
    if first == 51:
        if two in {b"34", b"37"}:
            return _FIFTEEN
        if two == b"35":
            return _UP_TO_19
        return _DINERS if two in {b"30", b"36", b"38", b"39"} else _NONE
    if first == 54:
        return _MAESTRO if two in {b"63", b"67"} else _UP_TO_19 if two in {b"60", b"62", b"64", b"65"} else _NONE
    if first == 50:
        return (
            _SIXTEEN
            if b"2221" <= four <= b"2720" or b"2200" <= four <= b"2204"
            else (_FIFTEEN if four == b"2131" else _NONE)
        )
    return _FIFTEEN if four == b"1800" else _NONE


# ── people's numbers ──────────────────────────────────────────────────────────────────────────────────────────────────


def _personal(data: bytes, groups: Sequence[Group]) -> Iterator[Finding]:
    """Find numbers that states issue to people, by their groups or by the words before them."""
    sizes = [end - start for start, end in groups]
    for place in range(len(groups) - 2):
        if sizes[place] != 3:
            continue
        shape = (sizes[place + 1], sizes[place + 2])
        if shape not in {(2, 4), (3, 3)}:
            continue
        piece = groups[place : place + 3]
        between = {data[piece[0][1] : piece[1][0]], data[piece[1][1] : piece[2][0]]}
        if len(between) == 1 and len(*between) == 1:
            kind = _state_number(data, piece, shape, *between)
            if kind:
                yield Finding(*_spans(piece), kind, 0.98)
    total = sum(sizes)
    if total in {9, 10} and len(groups) <= total:
        yield from _number_by_context(data, groups, total)


def _state_number(data: bytes, piece: Sequence[Group], shape: tuple[int, int], between: bytes) -> str:
    digits = _joined(data, piece)
    words = context.before(data, piece[0][0])
    if shape == (2, 4):
        # Between slashes it is the number of a paper and its year; after the name of something else, a number of that.
        other = between == b"/" or context.says_other(words)
        return "" if other and not (context.SSN.search(words) or context.ITIN.search(words)) else _us_kind(digits)
    if context.SIN.search(words):
        return "SIN" if is_sin(digits, named=True) else ""
    # Groups of three digits with spaces or dots may also be large sums.
    if between != b"-" and (between != b" " or digits.endswith(b"000")):
        return ""
    if (
        context.says_other(words)
        or context.PHONE.search(words)
        or context.says_money(context.after(data, piece[-1][1]))
    ):
        return ""
    return "SIN" if is_sin(digits, named=False) else ""


def _number_by_context(data: bytes, groups: Sequence[Group], total: int) -> Iterator[Finding]:
    words = context.before(data, groups[0][0])
    digits = _joined(data, groups)
    kind = ""
    if total == 9 and context.SIN.search(words):
        kind = "SIN" if is_sin(digits, named=True) else ""
    elif total == 9 and (context.SSN.search(words) or context.ITIN.search(words)):
        kind = _us_kind(digits)
    elif total == 10 and context.NHS.search(words):
        from stdnum.gb import nhs

        kind = "NHS_NUMBER" if nhs.is_valid(digits.decode()) else ""
    if kind:
        yield Finding(*_spans(groups), kind)


def _us_kind(digits: bytes) -> str:
    """Return the kind of a US number.

    SSN: no area 000, 666 or 9xx, no group 00, no serial 0000. ITIN: from 900 on, with groups of its own.
    """
    if digits[3:5] == b"00" or digits[5:] == b"0000" or digits[:3] in {b"000", b"666"}:
        return ""
    if digits[0] != 57:
        return "SSN"
    from stdnum.us import itin

    return "ITIN" if itin.is_valid(digits.decode()) else ""


def is_sin(digits: bytes, *, named: bool) -> bool:
    """Return whether *digits* are a Canadian SIN.

    Numbers from 0 on (fictitious) and from 8 on (issued to firms) count only if *named* as a SIN.
    """
    return (named or digits[0] not in b"08") and digits != b"000000000" and luhn(digits)


# ── telephones ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _phones(data: bytes, line: Sequence[Group], plan: Plan, *, glued_on: bool) -> Iterator[Finding]:
    first, last = _spans(line)
    words = context.before(data, first)
    follow = context.after(data, last)
    meant = context.PHONE.search(words) is not None or context.PHONE_AFTER.match(follow) is not None
    lead = _lead(data, first)
    other = context.says_other(words[: len(words) - len(lead)])
    if (other or context.says_money(follow)) and b"+" not in lead:
        return
    if glued_on and not meant:
        return
    for piece in (line,) if b"+" in lead else _between_dates(data, line):
        yield from _phones_in(data, piece, plan, meant=meant)


def _between_dates(data: bytes, line: Sequence[Group]) -> Iterator[Sequence[Group]]:
    """Yield the groups between dates."""
    dates = [match.span() for match in find_narrow(_DATE, data, *_spans(line))] if len(line) > 1 else []
    if not dates:
        yield line
        return
    piece: list[Group] = []
    waiting = iter(dates)
    date = next(waiting, None)
    for group in line:
        while date is not None and date[1] <= group[0]:
            date = next(waiting, None)
        if date is not None and date[0] <= group[0]:
            if piece:
                yield piece
            piece = []
        else:
            piece.append(group)
    if piece:
        yield piece


def _phones_in(data: bytes, piece: Sequence[Group], plan: Plan, *, meant: bool) -> Iterator[Finding]:
    """Find the telephone numbers in a row of groups; the longest match is taken first."""
    place = 0
    pointed = False
    while place < len(piece):
        first, end = piece[place]
        lead = _lead(data, first)
        score = phones.SURE
        held = place > 0 and data[piece[place - 1][1] : first] in _HOLDS
        if b"+" in lead or (data[first : first + 2] == b"00" and not place):
            taken = _international_groups(data, piece, place, plus=b"+" in lead, meant=meant)
        elif place and not lead and (held or pointed or (end - first == 1 and data[first] != _ONE)):
            taken = 0
        else:
            taken, score = _national_groups(data, piece, place, plan, opened=b"(" in lead, meant=meant and not place)
        if taken:
            end = piece[place + taken - 1][1]
            extension = _EXTENSION.match(data, end)
            yield Finding(first - len(lead), extension.end() if extension else end, "PHONE", score)
        elif data[end : end + 1] == b".":
            # The rest is a decimal number with its digits in groups.
            pointed = True
        place += taken or 1


def _lead(data: bytes, start: int) -> bytes:
    """Return the characters that open a number: a plus, a parenthesis, or both."""
    if not start or data[start - 1] not in _OPENS:
        return b""
    lead = data[max(0, start - 2) : start]
    return lead[len(lead.rstrip(_OPENS)) :]


def _international_groups(data: bytes, piece: Sequence[Group], place: int, *, plus: bool, meant: bool) -> int:
    """Return how many groups make up a number with a country code; groups of one digit count, as a disguise."""
    digits = b""
    best = 0
    for taken, (start, end) in enumerate(piece[place : place + phones.MOST_DIGITS], 1):
        trunk = taken > 1 and end - start == 1 and _TRUNK_ZERO.match(data, start - 1)
        digits += b"" if trunk else data[start:end]
        if taken > 1 and b"+" in data[piece[place + taken - 2][1] : start]:
            break
        national = digits if plus else digits[2:]
        if len(national) > phones.MOST_DIGITS:
            break
        if phones.international(national) or (meant and len(national) >= 7):
            best = taken
    # A row of digits that begins with 00 may be any number.
    return best if plus or best > 1 or meant else 0


def _national_groups(
    data: bytes, piece: Sequence[Group], place: int, plan: Plan, *, opened: bool, meant: bool
) -> tuple[int, float]:
    total = 0
    fitting: list[int] = []
    for taken, (start, end) in enumerate(piece[place : place + phones.MOST_GROUPS], 1):
        if taken > 1 and ((end - start == 1 and not meant) or b"+" in _lead(data, start)):
            break
        total += end - start
        if total > phones.MOST_DIGITS:
            break
        after = place + taken
        if total >= phones.FEWEST_DIGITS and (after == len(piece) or data[end : piece[after][0]] not in _HOLDS):
            fitting.append(taken)
    for taken in reversed(fitting):
        groups = piece[place : place + taken]
        between = [data[one[1] : other[0]] for one, other in pairwise(groups)]
        score = phones.score([data[start:end] for start, end in groups], between, opened=opened, plan=plan, meant=meant)
        if score:
            return taken, score
    return 0, 0
