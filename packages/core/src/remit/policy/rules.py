"""A team's own rules: which calls are refused, and which need a person's approval."""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal, cast

from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import replace

from remit.policy.verdict import ALLOW, Ask, Facts, Guard, Verdict, refuse
from remit.protocol.codec import text_of
from remit.protocol.envelope import Json, Request
from remit.protocol.errors import Code
from remit.words.normalisation import SearchText, search_text, search_word

Pattern = Annotated[str, Meta(min_length=1)]
Editable = Literal["objective", "input"]


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule for matching calls: every given pattern must match, and `*` matches anything in a name."""

    then: Literal["allow", "ask", "refuse"]
    """What happens to a matching call."""
    from_: Pattern = field(default="*", name="from")
    """The caller: an agent, or `user`."""
    to: Pattern = "*"
    """The callee."""
    capability: Pattern | None = None
    """The requested capability; None: any."""
    user: Pattern = "*"
    """The user of the run."""
    mentions: tuple[Pattern, ...] = ()
    """Words of which at least one stands in what the callee is told, in any case, also disguised."""
    say: str = ""
    """The question to the person, or the reason for the refusal."""
    edit: frozenset[Editable] = frozenset()
    """The fields that the person may edit before approving."""


def guard_of(rules: Sequence[Rule]) -> Guard:
    """Return the guard for *rules*: the first matching rule decides."""
    find = _finder(rules)

    def team_rules(request: Request, facts: Facts) -> Verdict:
        """No rule of the team refuses the call or requires a person's approval."""
        place = find(request)
        return ALLOW if place is None else _outcome(rules[place], request)

    return team_rules


def matching_rule(rules: Sequence[Rule], request: Request) -> int | None:
    """Return the place of the rule that decides about a request; None if none matches."""
    return _finder(rules)(request)


def question_of(rule: Rule, request: Request) -> str:
    """Return what a rule asks a person about a request."""
    return rule.say or f"May {request.origin} ask {_what(request)}?"


def _finder(rules: Sequence[Rule]) -> Callable[[Request], int | None]:
    mentions = [tuple(map(search_word, rule.mentions)) for rule in rules]
    folds = any(word.folded for words in mentions for word in words)

    def find(request: Request) -> int | None:
        texts: list[SearchText] | None = None
        for place, (rule, words) in enumerate(zip(rules, mentions, strict=True)):
            if not _fits(rule, request):
                continue
            if words:
                # Read once for all rules.
                texts = texts or [search_text(text, folds=folds) for text in _texts(request) if text]
                if not any(word.is_in(text) for text in texts for word in words):
                    continue
            return place
        return None

    return find


def _texts(request: Request) -> Iterator[str]:
    """Yield what a caller tells its callee: texts, names, and files that are text.

    Not what was said before, which was judged then: the conversation, and the user's own words in a hand-off.
    """
    yield from (request.objective, request.target, request.capability or "", *request.hints)
    yield from _texts_in(request.input)
    if request.handoff is not None:
        yield from _texts_in(to_builtins(replace(request.handoff, original_request="", history=None)))
    for file in request.files:
        yield from (file.name, file.url or "", file.text or "")


def _texts_in(value: Json) -> Iterator[str]:
    match value:
        case dict():
            for name, each in cast("dict[str, Json]", value).items():
                yield name
                yield from _texts_in(each)
        case list():
            for each in cast("list[Json]", value):
                yield from _texts_in(each)
        case _:
            yield text_of(value)


def _fits(rule: Rule, request: Request) -> bool:
    """Return whether the names in *request* match; its words are checked separately."""
    return (
        fnmatchcase(request.origin, rule.from_)
        and fnmatchcase(request.target, rule.to)
        and fnmatchcase(request.remit.user, rule.user)
        and (rule.capability is None or fnmatchcase(request.capability or "", rule.capability))
    )


def _outcome(rule: Rule, request: Request) -> Verdict:
    match rule.then:
        case "allow":
            return ALLOW
        case "refuse":
            return refuse(
                Code.PERMISSION_DENIED,
                rule.say or f"the team does not let {request.origin} ask {_what(request)}",
                suggestion="Ask for something that the rules of the team allow.",
            )
        case "ask":
            return Ask(question_of(rule, request), frozenset(rule.edit))


def _what(request: Request) -> str:
    return f"{request.target} for {request.capability}" if request.capability else request.target
