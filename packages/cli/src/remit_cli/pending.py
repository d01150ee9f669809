"""`remit pending`: approve or reject what agents ask permission for, and drafts to shared agents."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import click

from remit.ports import Decision, Question
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.question_view import described_file, view_of
from remit.words.terminal import marked
from remit_cli.completion import question_ids
from remit_cli.options import (
    GivenStore,
    SubcommandGroup,
    json_option,
    jsonl_option,
    same_team,
    store_options,
)
from remit_cli.places import (
    DraftBox,
    Place,
    current_user,
    drafts_in,
    folder_of,
    reading,
    record_file,
    vault_key,
    writing,
)
from remit_cli.show.screen import clock_time, cut, now_ms, print_fields, print_json, print_table, print_text, spoken
from remit_server.documents.shared import Decided, DraftAnswered, Pending, PendingQuestion, SharedDraft

# Enough of a draft to recognise it; `remit pending show` prints all of it.
DRAFT_SHOWN = 80

PendingItem = Question | SharedDraft

# Poll interval of --watch; nobody notices half a second.
WATCH_S = 0.5


@click.group(cls=SubcommandGroup)
def pending() -> None:
    """Approve or reject what agents ask permission for.

    There are two kinds: a question, when a rule of the team has `then = "ask"` and the agent waits; and a draft to a
    shared agent, in a chat that runs elsewhere (`remit chat PROFILE DEVICE`). Anyone who can open the store can answer.

    \b
    Example:
      remit pending list
      remit pending approve 3f09c1.1-5be0a7f2 --reason "checked with Ann"
    """


def answering(command: Any) -> Any:
    """Add the options of approve and reject: the question, the reason and the user."""
    for add in (
        json_option,
        store_options,
        click.option("--as", "name", metavar="NAME", help="Name of the person who answers.  [default: current user]"),
        click.option("--reason", default="", help="Reason. It is recorded, and sent to the agent if you reject."),
        click.argument("question", metavar="ID", shell_complete=question_ids),
    ):
        command = add(command)
    return command


# ── listing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pending.command(name="list")
@click.option("--watch", is_flag=True, help="Show new questions as they arrive, until Ctrl-C.")
@store_options
@json_option
@jsonl_option
def list_pending(watch: bool, given: GivenStore, as_json: bool, as_jsonl: bool) -> None:
    """List pending questions, oldest first, then pending drafts to shared agents.

    \b
    Example:
      remit pending list
      remit pending list --watch --jsonl
    """

    path = record_file(given)
    look = partial(_everything, path, given)
    items = look()
    if as_json and not watch:
        print_json(Pending(questions=tuple(map(question_of, _questions_in(items))), drafts=_drafts_in(items)))
        return
    if as_jsonl or as_json:
        for each in items:
            print_json(document_of(each))
    elif items:
        rows = [row_of(each, items) for each in items]
        print_table(["id", "asks", "question", "left"], rows, folds=["left", "asks", "question"])
        click.echo(f"→ {_todo('ID', given, show=True)}", err=True)
    else:
        click.echo("Nothing is pending.", err=True)
    if watch:
        _watch(look, items, as_lines=as_json or as_jsonl)


@pending.command()
@click.argument("question", metavar="ID", shell_complete=question_ids)
@click.option("--reveal", "is_revealed", is_flag=True, help="Show personal values in place of tokens. It is recorded.")
@click.option("--as", "name", metavar="NAME", help="Name of the person who reveals them.  [default: current user]")
@store_options
@json_option
def show(question: str, is_revealed: bool, name: str | None, given: GivenStore, as_json: bool) -> None:
    """Show a question with its request, or a draft with the reasons for its review.

    ID is the id of a question or draft, the start or end of one, or `last`.

    \b
    Example:
      remit pending show 3f09c1.1-5be0a7f2
      remit pending show 3f09c1.1-5be0a7f2 --reveal --as ann
    """

    path = record_file(given)
    item = _find(_everything(path, given), question)
    if is_revealed and isinstance(item, Question):
        item = _revealed(path, item, name or current_user(), given)
    if as_json:
        print_json(document_of(item))
        return
    print_fields(fields_of(item))
    click.echo(f"→ {_todo(short_id(item), given)}", err=True)


def _revealed(path: Place, question: Question, by: str, given: GivenStore) -> Question:
    """Return a question with personal values in place of tokens, once it is on record who reads them."""
    import asyncio

    from remit.runtime.approvers import reveal
    from remit.runtime.redactor import Redactor, has_tokens

    async def revealed() -> Question:
        async with writing(path) as store:
            redactor = Redactor(None, vault_key(given.team_file, given.overrides) if given.is_teams else None)
            redactor.open(store)
            return await reveal(store, redactor, question, by)

    clear = asyncio.run(revealed())
    if has_tokens(clear.request):
        click.echo("The values of some tokens are no longer kept.", err=True)
    return clear


def _todo(name: str, given: GivenStore, *, show: bool = False) -> str:
    """Return the next command, with the given team and store."""
    where = same_team(given.team_file) + (f" --store {quote(str(given.store_path))}" if given.store_path else "")
    if show and where:
        return f"remit pending show {name}{where}, then the same with approve or reject"
    verbs = ("show", "approve", "reject") if show else ("approve", "reject")
    first, *others = (f"remit pending {verb} {name}{where}" for verb in verbs)
    return f"{first}, {'then' if show else 'or'} {' or '.join(others)}"


def _everything(path: Place, given: GivenStore) -> list[PendingItem]:
    """Return everything that is pending: questions of the store, and drafts beside it."""
    items: list[PendingItem] = [*_questions(path)]
    box = _drafts_at(path, given)
    try:
        return items if box is None else [*items, *box.waiting()]
    except RemitError as error:
        # A device that cannot be opened must not prevent answers to the rest.
        click.echo(f"Cannot show drafts to shared agents: {error.fault.message}", err=True)
        return items


def _drafts_at(store: Place, given: GivenStore) -> DraftBox | None:
    return drafts_in(folder_of(store), given.team_file, given.overrides)


def _find(items: Sequence[PendingItem], name: str) -> PendingItem:
    """Return the pending item *name*: an id, the start or end of one, or `last` for the only one."""
    from remit.runtime.approvers import find

    drafts, questions = _drafts_in(items), _questions_in(items)
    if name == "last" and len(items) == 1:
        return items[0]
    fitting = [each for each in drafts if name and (each.draft.startswith(name) or each.draft.endswith(name))]
    if len(fitting) == 1 and not any(each.id == name for each in questions):
        return fitting[0]
    if not fitting and not questions:
        why = f"no pending question or draft `{name[:100]}`"
        if name == "last" and drafts:
            why = f"{len(drafts)} drafts are pending, so `last` is ambiguous"
        suggestion = "List them with `remit pending list`."
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, suggestion=suggestion))
    if not fitting:
        return find(questions if name != "last" or not drafts else [], name)
    which = ", ".join(each.draft for each in fitting)
    raise click.UsageError(f"ambiguous id `{name}` ({which}): type more characters")


def _drafts_in(items: Sequence[PendingItem]) -> tuple[SharedDraft, ...]:
    return tuple(each for each in items if isinstance(each, SharedDraft))


def _questions_in(items: Sequence[PendingItem]) -> tuple[Question, ...]:
    return tuple(each for each in items if isinstance(each, Question))


def _questions(path: Place) -> list[Question]:
    """Return the pending questions of a store; none if the store does not exist yet, because no run was started."""

    if (
        isinstance(path, Path)
        and not path.exists()
        and (not path.parent.exists() or _drafts_at(path, GivenStore(None, None, ())))
    ):
        return []
    with reading(path) as view:
        return view.pending()


def _watch(look: Callable[[], list[PendingItem]], shown: Sequence[PendingItem], *, as_lines: bool) -> None:
    known = set(map(id_of, shown))
    while True:
        time.sleep(WATCH_S)
        items = look()
        for each in items:
            if id_of(each) in known:
                continue
            if as_lines:
                print_json(document_of(each))
            else:
                print_text("  ".join(row_of(each, items)))
        known = set(map(id_of, items))


# ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pending.command()
@click.option(
    "--edit",
    "edits",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Edit a field before approving, if the rule allows it: objective=TEXT or input=JSON; for a draft, text=TEXT.",
)
@answering
def approve(
    question: str, edits: tuple[str, ...], reason: str, name: str | None, given: GivenStore, as_json: bool
) -> None:
    """Approve question ID, or send draft ID, so that the run continues.

    Your text may contain tokens such as [EMAIL:…]. The agent receives the original values.

    \b
    Example:
      remit pending approve 3f09c1.1-5be0a7f2
      remit pending approve 3f09c1.1-5be0a7f2 --edit 'objective=Pay 20 euros'
      remit pending approve 8b41d2.p3 --edit 'text=Shall we meet on Monday?'
    """

    changes = dict(map(_edit, edits))
    decision = Decision(agreed=True, by=name or current_user(), reason=reason, edits=changes)
    _decided(question, decision, given, as_json=as_json)


@pending.command()
@answering
def reject(question: str, reason: str, name: str | None, given: GivenStore, as_json: bool) -> None:
    """Reject question ID or draft ID. The agent receives the rejection and its reason.

    \b
    Example:
      remit pending reject 3f09c1.1-5be0a7f2 --reason "not this month"
    """

    decision = Decision(agreed=False, by=name or current_user(), reason=reason)
    _decided(question, decision, given, as_json=as_json)


def _edit(text: str) -> tuple[str, Json]:
    import msgspec

    field, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r}: write objective=TEXT or input=JSON", param_hint="--edit")
    if field != "input":
        return field, value
    try:
        return field, msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        message = f"the input is not JSON: {error}; put text in quotes: 'input=\"…\"'"
        raise click.BadParameter(message, param_hint="--edit") from error


def _decided(name: str, decision: Decision, given: GivenStore, *, as_json: bool) -> None:
    """Answer the pending item *name*."""

    path = record_file(given)
    box = _drafts_at(path, given)
    meant = None if box is None else _find(_everything(path, given), name)
    if box is None or not isinstance(meant, SharedDraft):
        _answer(path, name, decision, as_json=as_json)
        return
    if wrong := [field for field in decision.edits if field != "text"]:
        raise click.BadParameter(f"only `text` of a draft can be edited, not `{wrong[0]}`", param_hint="--edit")
    text = decision.edits.get("text")
    if text is not None and not str(text).strip():
        raise click.BadParameter("the text must not be empty; to send nothing, reject the draft", param_hint="--edit")
    edited = None if text is None else str(text)
    is_done = box.answer(meant, decision)
    _tell_draft(meant, decision, edited, given.team_file, is_done=is_done, as_json=as_json)


def _tell_draft(
    draft: SharedDraft,
    decision: Decision,
    edited: str | None,
    team_file: Path | None,
    *,
    is_done: bool,
    as_json: bool,
) -> None:
    if as_json:
        reason = "" if decision.agreed else decision.reason
        print_json(DraftAnswered(draft=draft, agreed=decision.agreed, text=edited, reason=reason))
        return
    agreed = "Approved" if decision.agreed else "Rejected"
    to = draft.device_name or draft.device
    print_text(f"{agreed} by {decision.by}: the draft of {draft.profile} for {to}, turn {draft.turn}")
    goes_on = "It is sent" if decision.agreed else "Its agent is notified"
    if is_done:
        click.echo(f"{goes_on}.")
        return
    click.echo(f"{goes_on} when the chat of run {draft.run} reads the answer or resumes.")
    names = f"{quote(draft.profile)} {quote(to)} --continue {draft.run}"
    click.echo(f"→ If no chat is open: remit chat {names}{same_team(team_file)}", err=True)


def _answer(path: Place, name: str, decision: Decision, *, as_json: bool) -> None:
    import asyncio

    question = asyncio.run(_decide(path, name, decision))
    request, state = question.request, _state(path, question.request.run)
    if as_json:
        print_json(Decided(question=question.id, run=request.run, state=state, decision=decision))
        return
    agreed = "Approved" if decision.agreed else "Rejected"
    print_text(f"{agreed} by {decision.by}: {question.text} ({request.origin} → {request.target})")
    goes_on = (
        f"Run {request.run} continues" if decision.agreed else f"{request.origin} is notified in run {request.run}"
    )
    click.echo(f"{goes_on} when its hub, or the next hub on this store, reads the answer.")
    click.echo(f"→ remit runs watch {request.run}", err=True)


async def _decide(path: Place, name: str, decision: Decision) -> Question:
    from remit.runtime.approvers import decide

    async with writing(path) as store:
        return await decide(store, name, decision)


def _state(path: Place, run: str) -> Any:
    with reading(path) as view:
        runs = view.runs(run=run, limit=1)
    return runs[0].state if runs else "silent"


def id_of(item: PendingItem) -> str:
    """Return the id by which an item is answered."""
    return item.id if isinstance(item, Question) else item.draft


def short_id(item: PendingItem) -> str:
    """Return the shortest unique id: the end of the run's id, the position in the run, and the digest of the question.

    The digest alone would not do: another run may ask the same question, which would then be approved by mistake.
    """
    name, run = id_of(item), item.request.run if isinstance(item, Question) else item.run
    return name[max(0, len(run) - 6) :] if name.startswith(run) else name


def row_of(item: PendingItem, among: Sequence[PendingItem]) -> tuple[str, str, str, str]:
    """Return a row of the table: an id that is unique *among* the items, caller and callee, the question, and
    its age.
    """
    name = short_id(item)
    if sum(id_of(each).endswith(name) for each in among) > 1:
        name = id_of(item)
    if isinstance(item, SharedDraft):
        to = item.device_name or item.device
        text = f"Send as turn {item.turn}: {cut(item.text, DRAFT_SHOWN)}"
        return name, f"{item.profile} → {to}", text, "paused" if item.paused else ""
    left = spoken(max(0, item.expires_ms - now_ms()))
    return name, f"{item.request.origin} → {item.request.target}", item.text, left


def fields_of(item: PendingItem) -> Iterator[tuple[str, str]]:
    """Return all fields of an item."""
    return _question_fields(item) if isinstance(item, Question) else _draft_fields(item)


def _draft_fields(draft: SharedDraft) -> Iterator[tuple[str, str]]:
    yield "draft", draft.text
    yield "to be sent", f"as turn {draft.turn}, {draft.profile} → {draft.device_name or draft.device}"
    yield "objective", draft.objective
    yield "because", "\n".join(f"{each.rule}: {each.why}" for each in draft.reviews)
    yield "paused", "an answer takes effect when the run resumes" if draft.paused else ""
    yield "editable", "text"
    yield "run", draft.run
    yield "id", draft.draft


def document_of(item: PendingItem) -> PendingQuestion | SharedDraft:
    """Return an item as a document."""
    return question_of(item) if isinstance(item, Question) else item


def question_of(question: Question) -> PendingQuestion:
    """Return a question as a document."""
    left_ms = max(0, question.expires_ms - now_ms())
    return PendingQuestion(question=question, run=question.request.run, left_ms=left_ms)


def _question_fields(question: Question) -> Iterator[tuple[str, str]]:
    request, view = question.request, view_of(question)
    yield "question", marked(question.text)
    yield "asks", view.sentence
    for part in view.parts:
        yield part.title, part.text
    for file in view.files:
        yield "file", described_file(file)
    yield "user", request.remit.user
    yield "through", " → ".join(request.remit.chain)
    yield "limits", f"{spoken(request.remit.time_ms)}, {request.remit.tokens} tokens"
    yield "editable", ", ".join(sorted(question.editable)) or "nothing"
    yield "asked", clock_time(question.asked_ms)
    yield "expires in", spoken(max(0, question.expires_ms - now_ms()))
    yield "run", request.run
    yield "id", question.id
