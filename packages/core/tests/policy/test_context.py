"""What a callee may see of a conversation: what was said and nothing else, as far as it is asked for and fits."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.budget import estimate
from remit.policy.context import (
    ROLES,
    RecordedMessages,
    check,
    fit,
    matches,
    message_of,
    messages_from_records,
    newest,
    notes_for,
    select,
    with_findings_that_fit,
)
from remit.policy.restoring import kept_findings
from remit.protocol.envelope import ContextFilter, Known, Message, Note, Request, ToolFinding, View
from remit.protocol.errors import Code, Problem, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Approval, Body, Delta, Kind, Notice, Progress, Record, Refusal, ToolUse
from samples import a_request, a_response
from strategies import texts

NOW_MS = 1_000_000


def a_record(body: Body, kind: Kind = Kind.STARTED, *, seq: int = 1, at_ms: int = NOW_MS) -> Record:
    return Record(seq=seq, kind=kind, at_ms=at_ms, run="run-1", session="session-1", body=body)


def a_message(text: str = "hello", **changes: Any) -> Message:
    return replace(Message(role="user", text=text, tokens=len(text), at_ms=NOW_MS), **changes)


def numbered(*messages: Message) -> list[Message]:
    return [replace(message, seq=seq) for seq, message in enumerate(messages, start=1)]


def chosen(messages: list[Message], tokens: int = 1_000, **wanted: Any) -> list[str]:
    messages_shown = select(messages, ContextFilter(**wanted), now_ms=NOW_MS, tokens=tokens)
    return [message.text for message in messages_shown]


# ── which messages there are ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [Kind.STARTED, Kind.DELEGATION])
def test_a_request_is_what_its_origin_said(kind: Kind) -> None:
    record = a_record(a_request(objective="Sort", input={"n": 1}, parent="run-1"), kind, seq=7)
    assert message_of(record, len) == Message(
        role="user", text='Sort\n{"n":1}', name="prime", tokens=12, at_ms=NOW_MS, seq=7, delegation="r-1"
    )


def test_a_root_request_is_known_by_its_run() -> None:
    message = message_of(a_record(a_request(parent=None)), len)
    assert message is not None
    assert message.delegation == "run-1"


@pytest.mark.parametrize(
    ("objective", "input", "text"),
    [
        ("Sort", None, "Sort"),
        ("Sort", "Sort", "Sort"),
        ("Sort", "my receipts", "Sort\nmy receipts"),
        ("Sort", "", "Sort"),
        ("Sort", 0, "Sort\n0"),
        ("", "my receipts", "my receipts"),
        ("", None, ""),
    ],
)
def test_a_request_says_its_objective_and_its_input_if_that_is_more(objective: str, input: Any, text: str) -> None:
    message = message_of(a_record(a_request(objective=objective, input=input)), len)
    assert message is not None
    assert message.text == text


@pytest.mark.parametrize("status", Status)
def test_a_result_is_what_the_callee_said_however_it_ended(status: Status) -> None:
    record = a_record(a_response(result=[1], status=status), Kind.RESULT, seq=8)
    assert message_of(record, len) == Message(
        role="assistant", text="[1]", name="tag", tokens=3, at_ms=NOW_MS, seq=8, delegation="r-1"
    )


INSIDE: dict[Kind, Callable[[str], Body]] = {
    Kind.PROGRESS: lambda text: Progress(delegation="r-1", agent="tag", text=text, finished=(text,)),
    Kind.TOOL: lambda text: ToolUse(delegation="r-1", agent="tag", tool=text or "t", input={text: text}),
    Kind.NOTICE: lambda text: Notice(delegation="r-1", agent="tag", text=text),
    Kind.RESULT: lambda text: a_response(
        result=None, summary=text, tool_calls=(text,), fault=fault(Code.TIMEOUT, text), warnings=(text,)
    ),
    Kind.REFUSED: lambda text: Refusal(request=a_request(objective=text), response=a_response(result=text)),
    Kind.APPROVAL: lambda text: Approval(delegation="r-1", agent="tag", id="q", question=text, reason=text),
    Kind.DELTA: lambda text: Delta(delegation="r-1", agent="tag", text=text),
}
"""What happens inside an agent, or never happened at all."""


@pytest.mark.parametrize("kind", INSIDE)
def test_what_happens_inside_an_agent_is_no_message(kind: Kind) -> None:
    """O4: no tool call, no result of one, no reasoning."""
    assert message_of(a_record(INSIDE[kind]("canary"), kind), len) is None


CANARY = "canary-7f3a"

visible = st.one_of(
    texts.map(lambda text: (Kind.DELEGATION, a_request(objective=text, hints=(CANARY,), reason=CANARY))),
    texts.map(lambda text: (Kind.RESULT, a_response(result=text, summary=CANARY, tool_calls=(CANARY,)))),
)
unheard = st.sampled_from(sorted(INSIDE)).map(lambda kind: (kind, INSIDE[kind](CANARY)))
filters = st.builds(
    ContextFilter,
    last_messages=st.none() | st.integers(0, 20),
    roles=st.none() | st.frozensets(st.sampled_from(ROLES)),
    keywords=st.none() | st.lists(texts.filter(bool) | st.just(CANARY), max_size=3).map(tuple),
    max_age_seconds=st.none() | st.integers(0, 100),
)


@given(st.lists(visible | unheard, max_size=20), filters)
def test_no_filter_lets_anything_pass_that_happened_inside_an_agent(
    session: list[tuple[Kind, Body]], wanted: ContextFilter
) -> None:
    """O4: the callee never sees the caller's tool calls, their results or its reasoning."""
    records = [a_record(body, kind, seq=seq) for seq, (kind, body) in enumerate(session, start=1)]
    messages = messages_from_records(records, original=lambda _: None, count=len).messages
    passed = select(messages, wanted, now_ms=NOW_MS, tokens=10**9)
    assert CANARY not in repr(passed)
    assert {message.role for message in passed} <= {"user", "assistant"}


def test_a_record_of_what_happened_inside_an_agent_says_nothing() -> None:
    inside = a_record(Progress(delegation="r-1", agent="tag", text="inside"), Kind.PROGRESS)
    assert messages_from_records([inside], original=lambda _: None, count=len).messages == []


def test_what_a_callee_was_shown_stands_once_before_the_request_that_showed_it() -> None:
    elsewhere = {seq: a_record(a_response(result=f"shown {seq}"), Kind.RESULT, seq=seq) for seq in (1, 2)}
    elsewhere[3] = a_record(Progress(delegation="r-1", agent="tag", text="inside"), Kind.PROGRESS, seq=3)

    def asking(objective: str, *shown: int) -> Request:
        view = View(messages=tuple(a_message(seq=seq, tokens=100 + seq) for seq in shown))
        return a_request(id=objective, parent="run-1", objective=objective, view=view.recorded())

    records = [a_record(asking("first", 1), seq=10), a_record(asking("second", 1, 2, 3, 4), seq=11)]
    recorded = messages_from_records(records, original=elsewhere.get, count=len)
    assert [(message.text, message.seq, message.tokens) for message in recorded.messages] == [
        ("shown 1", 1, 101),
        ("first", 10, 5),
        ("shown 2", 2, 102),
        ("second", 11, 6),
    ]


def test_a_request_that_began_in_another_form_replaces_its_first_form() -> None:
    records = [
        a_record(a_request(objective="first"), seq=1),
        a_record(a_request(objective="another", id="r-2", parent="run-1"), seq=2),
        a_record(a_request(objective="edited"), seq=3),
        a_record(a_response(result="done"), Kind.RESULT, seq=4),
    ]
    recorded = messages_from_records(records, original=lambda _: None, count=len)
    assert [message.text for message in recorded.messages] == ["another", "edited", "done"]
    rest = messages_from_records(records[2:], original=lambda _: None, count=len, last_forms={"run-1": 1, "r-2": 2})
    assert rest == RecordedMessages(recorded.messages[1:], {1})


# ── which of them are asked for ───────────────────────────────────────────────────────────────────────────────────────


def test_a_filter_may_ask_for_any_role_that_can_pass_or_never_does() -> None:
    assert check(ContextFilter()) is None
    assert check(ContextFilter(roles=frozenset(ROLES))) is None


def test_tool_messages_are_refused_by_name() -> None:
    wrong = check(ContextFilter(roles=frozenset({"user", "tool"})))
    assert wrong is not None
    assert wrong.code is Code.INPUT_VALIDATION_FAILED
    assert wrong.message.startswith("tool messages are never passed on")
    assert wrong.problems == (Problem("context.roles", wrong.message),)


def test_every_unknown_role_is_named_with_what_may_have_been_meant() -> None:
    wrong = check(ContextFilter(roles=frozenset({"asistant", "boss"})))
    assert wrong is not None
    assert wrong.problems == (
        Problem("context.roles", "there is no role `asistant`; did you mean `assistant`?"),
        Problem("context.roles", "there is no role `boss`; known roles: user, assistant, system"),
    )


def test_a_system_prompt_never_passes() -> None:
    assert chosen([a_message("hello")], roles=frozenset({"system"})) == []


def test_only_what_is_strictly_newer_than_the_greatest_age_passes() -> None:
    messages = [a_message(str(age), at_ms=NOW_MS - age) for age in (2_001, 2_000, 1_999, 0)]
    assert chosen(messages, max_age_seconds=2) == ["1999", "0"]
    assert chosen(messages, max_age_seconds=0) == []


def test_only_wanted_roles_pass() -> None:
    messages = [a_message("asked"), a_message("answered", role="assistant")]
    assert chosen(messages, roles=frozenset({"assistant"})) == ["answered"]
    assert chosen(messages, roles=frozenset()) == []


@pytest.mark.parametrize(
    ("keyword", "text"),
    [
        ("ERROR", "an error here"),
        ("rro", "an ERROR"),
        ("strasse", "Die Straße"),
        ("ß", "MASSE"),
        ("i̇", "İ"),
        (" ", "a b"),
    ],
)
def test_a_keyword_is_found_anywhere_in_whichever_case(keyword: str, text: str) -> None:
    assert matches(a_message(text), ContextFilter(keywords=(keyword,)), NOW_MS)


def test_one_of_several_keywords_is_enough() -> None:
    messages = [a_message("apple"), a_message("pear"), a_message("plum")]
    assert chosen(messages, keywords=("LUM", "app")) == ["apple", "plum"]
    assert chosen(messages, keywords=()) == []


def test_the_last_are_taken_of_those_that_passed_everything_else() -> None:
    """O2: applied in the document's order."""
    messages = [
        a_message(text, role=role)
        for text, role in (("a1", "user"), ("a2", "user"), ("b", "user"), ("a3", "assistant"))
    ]
    assert chosen(messages, last_messages=2) == ["b", "a3"]
    assert chosen(messages, last_messages=1, roles=frozenset({"user"}), keywords=("a",)) == ["a2"]
    assert chosen(messages, last_messages=0) == []
    assert chosen(messages, last_messages=9) == ["a1", "a2", "b", "a3"]


def test_the_newest_are_taken_until_one_does_not_fit() -> None:
    """O2: fitted to the token budget, newest first."""
    messages = [
        a_message("a", tokens=1),
        a_message("b", tokens=50),
        a_message("c", tokens=0),
        a_message("d", tokens=10),
    ]
    assert chosen(messages, tokens=60) == ["b", "c", "d"]
    assert chosen(messages, tokens=59) == ["c", "d"]
    assert chosen(messages, tokens=9) == []


def test_no_more_is_looked_at_than_need_be() -> None:
    def unending() -> Any:
        while True:
            yield a_message("x", tokens=4)

    assert len(newest(unending(), last=None, tokens=9)) == 2
    assert len(newest(unending(), last=2, tokens=100)) == 2


# ── how much fits ─────────────────────────────────────────────────────────────────────────────────────────────────────


def words(text: str) -> int:
    return len(text.split())


def shown(view: View, *, task: int = 10, room: int = 110, last_first: bool = False) -> View:
    return fit(view, task=task, room=room, count=words, last_first=last_first)


def some(count: int, *, tokens: int = 10) -> tuple[Message, ...]:
    return tuple(numbered(*[a_message(f"m{number}", tokens=tokens) for number in range(count)]))


def many(count: int) -> str:
    return " ".join(f"w{number}" for number in range(count))


def test_what_fits_is_shown_whole_and_counted_with_the_task() -> None:
    view = View(messages=some(2), summary=many(5), workspace=many(6), known=(Note("fact", many(4)),), seen=(9,))
    for last_first in (False, True):
        assert shown(view, last_first=last_first) == replace(view, tokens=10 + 20 + 5 + 6 + 4)


def test_nothing_is_shown_where_the_task_alone_is_too_much() -> None:
    view = View(messages=some(2), summary="s", workspace="w", known=(Note("fact", "f"),), seen=(9,))
    assert shown(view, task=111) == View(seen=(9,), tokens=111)
    assert shown(view, task=110) == View(seen=(9,), tokens=110)


def test_the_newest_of_what_is_known_takes_up_to_a_quarter() -> None:
    known = tuple(Note("fact", f"{number} {many(9)}") for number in range(5))
    assert shown(View(known=known)) == View(known=known[-2:], tokens=30)


def test_messages_that_were_asked_for_by_number_come_before_summary_and_workspace() -> None:
    view = View(messages=some(8), summary=many(15), workspace=many(30))
    view_shown = shown(view, last_first=True)
    assert view_shown == View(messages=view.messages, summary=many(15), workspace=many(5) + "…", tokens=110)
    view_shown = shown(replace(view, messages=some(20)), last_first=True)
    assert (view_shown.messages, view_shown.summary, view_shown.workspace) == (some(20)[-10:], "", "")


def test_summary_and_workspace_keep_half_where_no_number_was_asked_for() -> None:
    view = View(messages=some(20), summary=many(30), workspace=many(40))
    view_shown = shown(view)
    assert view_shown == View(messages=some(20)[-5:], summary=many(30), workspace=many(20) + "…", tokens=110)
    view_shown = shown(replace(view, summary=many(70)))
    assert view_shown == View(messages=some(20)[-5:], summary=many(50) + "…", workspace="", tokens=110)


def test_summary_and_workspace_keep_what_the_messages_do_not_need() -> None:
    view = View(messages=some(2), summary=many(60), workspace=many(40))
    assert shown(view) == replace(view, workspace=many(20) + "…", tokens=110)


def characters(text: str) -> int:
    return len(text)


@pytest.mark.parametrize(
    ("text", "room", "cut"),
    [
        ("one two\nthree four", 18, "one two\nthree four"),
        ("one two\nthree four", 14, "one two…"),
        ("one two\nthree four five six", 24, "one two\nthree four five…"),
        ("one two three", 12, "one two…"),
        ("one two three", 8, "one two…"),
        ("半夜三更半夜三更", 5, "半夜三更…"),
        ("一 半夜三更半夜三更", 6, "一 半夜三…"),
        ("one", 1, ""),
        ("one", 0, ""),
    ],
)
def test_a_text_is_cut_at_the_end_of_a_line_or_of_a_word(text: str, room: int, cut: str) -> None:
    view = fit(View(summary=text), task=0, room=room, count=characters, last_first=False)
    assert view == View(summary=cut, tokens=len(cut))


def test_a_text_of_which_a_shorter_part_is_more_tokens_still_fits() -> None:
    def odd(text: str) -> int:
        return 100 if text == "aaaa bbbb…" else len(text)

    view = fit(View(workspace="aaaa bbbb cccc"), task=0, room=12, count=odd, last_first=True)
    assert view == View(workspace="aaaa bbb…", tokens=9)


messages = st.lists(st.builds(a_message, texts, tokens=st.integers(0, 60)), max_size=8).map(
    lambda messages: tuple(numbered(*messages))
)
prose = st.text(st.sampled_from("ab1 \n.ß半"), max_size=80)
views = st.builds(
    View,
    messages=messages,
    summary=prose,
    workspace=prose,
    known=st.lists(st.builds(Note, st.just("fact"), prose), max_size=5, unique=True).map(tuple),
)
counters = st.sampled_from([estimate, len, words])
sizes = st.integers(0, 150)


def all_of(view: View, count: Callable[[str], int]) -> int:
    texts = [view.summary, view.workspace, *(note.text for note in view.known)]
    return sum(count(text) for text in texts if text) + sum(message.tokens for message in view.messages)


@given(views, sizes, sizes, counters, st.booleans())
def test_no_callee_is_given_more_to_read_than_there_is_room_for(
    view: View, task: int, room: int, count: Callable[[str], int], last_first: bool
) -> None:
    """O2: the total includes the task."""
    fitted = fit(view, task=task, room=room, count=count, last_first=last_first)
    assert fitted.tokens == task + all_of(fitted, count) <= max(task, room)


@given(views, sizes, sizes, counters, st.booleans())
def test_of_messages_and_notes_the_newest_are_shown_in_order(
    view: View, task: int, room: int, count: Callable[[str], int], last_first: bool
) -> None:
    fitted = fit(view, task=task, room=room, count=count, last_first=last_first)
    assert fitted.messages == view.messages[len(view.messages) - len(fitted.messages) :]
    assert fitted.known == view.known[len(view.known) - len(fitted.known) :]


@given(views, sizes, sizes, counters, st.booleans())
def test_what_fits_already_is_left_alone(
    view: View, task: int, room: int, count: Callable[[str], int], last_first: bool
) -> None:
    once = fit(view, task=task, room=room, count=count, last_first=last_first)
    assert fit(once, task=task, room=room, count=count, last_first=last_first) == once


@given(views, sizes, counters)
def test_a_text_that_is_trimmed_is_the_beginning_of_what_it_was(
    view: View, room: int, count: Callable[[str], int]
) -> None:
    fitted = fit(view, task=0, room=room, count=count, last_first=False)
    for before, after in ((view.summary, fitted.summary), (view.workspace, fitted.workspace)):
        assert after == before or before.startswith(after.removesuffix("…"))


# ── notes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


NOTES = (
    Note("fact", "The server is in Oslo", "finder"),
    Note("decision", "Use PostgreSQL"),
    Note("constraint", "budget: 500 EUR"),
    Note("answer", "May I pay? yes"),
)
FILTERS = st.none() | st.builds(ContextFilter, known=st.sampled_from([None, "none", "decisions", "all"]))


@pytest.mark.parametrize(
    ("known", "kinds"),
    [
        (None, []),
        ("none", []),
        ("decisions", ["decision", "constraint"]),
        ("all", ["fact", "decision", "constraint", "answer"]),
    ],
)
def test_an_agent_passes_what_it_names(known: Known | None, kinds: list[str]) -> None:
    assert [note.kind for note in notes_for(NOTES, [ContextFilter(known=known), None])] == kinds


def test_an_agent_without_a_filter_passes_none() -> None:
    assert notes_for(NOTES, [None, None]) == ()


def test_the_agent_that_the_user_talks_to_has_all_unless_the_user_says_otherwise() -> None:
    """K14."""
    assert notes_for(NOTES, [None]) == NOTES
    assert notes_for(NOTES, [ContextFilter()]) == NOTES
    assert notes_for(NOTES, [ContextFilter(known="none")]) == ()


@given(st.lists(FILTERS, min_size=1, max_size=5), FILTERS)
def test_no_callee_sees_a_note_that_its_caller_does_not_see(above: list[ContextFilter | None], own: object) -> None:
    assert isinstance(own, ContextFilter | None)
    assert set(notes_for(NOTES, [own, *above])) <= set(notes_for(NOTES, above))


# ── what tools returned ───────────────────────────────────────────────────────────────────────────────────────────────

TOKEN_OF_MAIL = "[EMAIL:bcdfghjklmnp]"


def a_finding(result: str, tool: str = "look", **fields: Any) -> ToolFinding:
    return ToolFinding(tool=tool, result=result, **fields)


def test_of_an_answer_the_newest_findings_are_kept_and_the_older_ones_in_part() -> None:
    many = [a_finding(f"{number} " + "x" * 5_000) for number in range(30)]
    kept = kept_findings(many, ())
    assert [each.result.split()[0] for each in kept] == [str(number) for number in range(10, 30)]
    assert [len(each.result) for each in kept[-4:]] == [4_000] * 4
    assert {len(each.result) for each in kept[:-4]} == {200}
    assert kept_findings([a_finding("short", arguments={"q": "x" * 300})], ())[0].arguments is None


def test_a_token_is_kept_as_a_whole_or_not_at_all_and_the_agents_own_are_named() -> None:
    result = "x" * 3_990 + TOKEN_OF_MAIL + "y" * 100
    (cut,) = kept_findings([a_finding(result)], {TOKEN_OF_MAIL})
    assert cut.result == "x" * 3_990 + "…"
    assert cut.hidden == ()
    (whole,) = kept_findings([a_finding(f"[a] {TOKEN_OF_MAIL} {TOKEN_OF_MAIL} [PHONE:bcdfghjklmnp]")], {TOKEN_OF_MAIL})
    assert whole.hidden == (TOKEN_OF_MAIL,)
    (brackets,) = kept_findings([a_finding("[" + "x" * 5_000)], ())
    assert len(brackets.result) == 4_000


def test_findings_that_do_not_fit_are_shortened_oldest_first_and_those_of_others_left_out() -> None:
    findings = (a_finding("a" * 1_000), a_finding("b" * 1_000))
    mine = a_message("old", role="assistant", name="desk", findings=findings)
    theirs = replace(mine, name="clerk")
    shown = with_findings_that_fit([theirs, mine, a_message("plain")], "desk", 1_300, len)
    assert [[len(each.result) for each in message.findings] for message in shown] == [[], [201, 1_000], []]
    assert [message.text for message in shown] == ["old", "old", "plain"]
    (none,) = with_findings_that_fit([mine], "desk", 100, len)
    assert none.findings == ()


def test_a_message_has_what_its_author_looked_up() -> None:
    response = replace(a_response(), result="done", findings=(a_finding("7C"),))
    message = message_of(a_record(response, Kind.RESULT), len)
    assert message is not None
    assert message.findings == (a_finding("7C"),)
