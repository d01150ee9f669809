"""The reducer of a run in which a local agent works with a shared one: pure, one step at a time (S2, S7, S8, S9).

The caller (`SessionService`) does this:

- It passes each event to `step`, one after the other, and commits the returned overlay before it carries out the
  effects, in their order.
- The message of a `Send` goes into the outbox, under its id, in the same transaction as the overlay. After that commit
  it reports `Sent`. So a message is in the outbox if and only if the overlay says so: it is never sent twice, and not
  again after a restart.
- After `Pause` no `Send` comes until someone resumes the run; a message that was released before is still sent.
  `Pause` and `Resume` say whether the run goes on, `TakeOver` and `HandBack` who writes: neither changes the other.
- After a start it reports `Restarted` to each run that it changes (`is_changed_by_restart`), and then to those that
  still have `sending` what became of their message (`outcome_of_sending`): it is in the outbox, or was refused. All of
  them are then paused (or in error) until a person resumes them.
- It reports `Tick` periodically; the time limit is as exact as that.

The clock of `max_duration_ms` runs while agents work: not while the run is paused or in error, while a person reviews a
draft or is asked for a permission, or while a person has taken over. In a chat that a person began alone no limit of
turns and time counts until the agent is first asked.
"""

from msgspec.structs import replace

from remit.protocol.lifecycle import IllegalMoveError
from remit.words.components import cut
from remit_relay.bridge.ports import ConversationTurn, Draft, DraftFailure, PermissionRequest
from remit_relay.session import moves
from remit_relay.session.moves import TABLE, Event, Label, Reason, SessionState, refusal
from remit_relay.session.profile import Attachment
from remit_relay.session.review import Review
from remit_relay.session.run import MoveRefused, Overlay, PendingDraft, Person, RejectedDraft, TimelineEntry, Transition

# ── the effect of each message and event ──────────────────────────────────────────────────────────────────────────────

# More unanswered messages are a flood; each step would store and show all of them again.
MOST_UNANSWERED = 100

# ── limits and end ────────────────────────────────────────────────────────────────────────────────────────────────────


def is_out_of_time(run: Overlay) -> bool:
    return run.active_ms >= run.limits.max_duration_ms


def _is_out_of_tokens(run: Overlay, over: int = 0) -> bool:
    """Return whether the budget is spent, or overspent by at least *over*."""
    budget = run.limits.max_tokens_budget
    return budget is not None and run.tokens >= budget + over


def _limit(run: Overlay) -> Reason | None:
    """Return the limit that prevents another message, if one is reached."""
    if run.is_plain_chat:
        return None
    if run.counted_turns >= run.limits.max_turns:
        return "max_turns"
    return "max_duration_ms" if is_out_of_time(run) else None


def end_at(run: Overlay, limit: Reason) -> Transition:
    """End a run at a limit, with a banner (S7)."""
    limits = run.limits
    reached = {
        "max_turns": _many(limits.max_turns, "turn"),
        "max_duration_ms": f"{_duration(limits.max_duration_ms)} of work",
        "max_failures": f"{_many(limits.max_failures, 'failure')} in a row, the last: {run.failure}",
        "max_tokens_budget": _many(limits.max_tokens_budget or 0, "token"),
    }
    return end(run, SessionState.STOPPED, limit, f"The run has ended at its limit of {reached[limit]}")


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _duration(ms: int) -> str:
    """Return a time in the largest unit of which it is a whole number."""
    for unit, size in (("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if ms >= size and ms % size == 0:
            return _many(ms // size, unit)
    return _many(ms, "millisecond")


def end(run: Overlay, state: SessionState, why: Reason, banner: str = "") -> Transition:
    """End a run; received messages are kept, and an unsent draft stays visible."""
    ended = replace(with_kept(run), state=state, back=None, ended=why, banner=banner)
    ended = replace(ended, prompt=None, sending=None, unsent=None, guidance="")
    return Transition(ended, (*cancel(run), moves.Ended(state=state, why=why, banner=banner)))


def cancel(run: Overlay) -> tuple[moves.Cancel, ...]:
    return (moves.Cancel(id=run.prompt),) if run.prompt else ()


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def open_state(run: Overlay) -> SessionState:
    """Return the state of a run while the next message is open."""
    replied = bool(run.timeline) and run.timeline[-1].role == "remote_agent"
    return SessionState.PROCESSING_REMOTE if replied else SessionState.PLANNING


def next_turn(run: Overlay) -> Transition:
    """Let the agent or the person write the next message, unless a limit is reached."""
    if limit := _limit(run):
        return end_at(run, limit)
    if run.decides == "person":
        return Transition(replace(run, state=open_state(run)))
    if _is_out_of_tokens(run):
        return end_at(run, "max_tokens_budget")
    made = run.prompts + 1
    prompt = moves.Prompt(
        id=f"{run.id}.p{made}", turn_index=run.turn + 1, mode=run.mode, objective=run.objective, turns=_turns(run)
    )
    return Transition(replace(run, state=open_state(run), prompts=made, prompt=prompt.id), (prompt,))


def _turns(run: Overlay) -> tuple[ConversationTurn, ...]:
    """Return the conversation without lost messages, with the guidance after a rejected draft."""
    turns: list[ConversationTurn] = []
    for entry in run.timeline:
        if not entry.failed:
            turns.append(ConversationTurn(role=entry.role, text=entry.text))
            # In a turn of its own: what the remote agent said stays as it is.
            turns += _note("Files of this message", entry.files)
    turns += _note("The next message will carry the files", run.attached)
    return (*turns, ConversationTurn(role="user", text=run.guidance)) if run.guidance else tuple(turns)


def _note(caption: str, files: tuple[Attachment, ...]) -> list[ConversationTurn]:
    """Return a turn that names files to the local agent, if there are some."""
    named = [f"{each.name} ({each.media_type}, {each.size:,} bytes)" for each in files if not each.refused]
    return [ConversationTurn(role="user", text=f"{caption}: {', '.join(named)}")] if named else []


def not_awaited(run: Overlay, prompt: str) -> MoveRefused | None:
    if run.prompt == prompt:
        return None
    return MoveRefused(f"the prompt {prompt} is not the current one ({run.prompt or 'none'})")


# ── from the local agent ──────────────────────────────────────────────────────────────────────────────────────────────


def drafted(run: Overlay, prompt: str, draft: Draft, reviews: tuple[Review, ...], now_ms: int) -> Transition:
    # Without a report of the agent, count at least its draft: a token has about four characters.
    tokens = -(-len(draft.text) // 4) if draft.tokens is None else draft.tokens
    run = replace(run, tokens=run.tokens + tokens)
    if not draft.done and not draft.text.strip():
        return local_failed(run, DraftFailure(reason="the draft is empty", hard=False))
    why = _why_asked(run, reviews)
    pending = PendingDraft(id=prompt, text=draft.text, reviews=why, took_ms=draft.duration_ms, done=draft.done)
    run = replace(run, failures=0, failure="", recorded_failure="", pending=pending)
    if not draft.done and _is_out_of_tokens(run, 1):
        return end_at(run, "max_tokens_budget")
    if run.state is SessionState.PAUSED:
        return Transition(replace(run, back=SessionState.READY_TO_SEND))
    if draft.done:
        return complete(run, draft.text)
    return ask(run, pending) if why else send(run, pending.text, "auto_sent", now_ms)


def _why_asked(run: Overlay, reviews: tuple[Review, ...]) -> tuple[Review, ...]:
    """Return why a person must review a draft; empty if nobody must."""
    # Decided here and not with the others, because a file may be attached until this very step.
    counted = tuple(each for each in reviews if each.rule != "attachments" or run.attached)
    why = () if run.mode == "full_auto" else counted
    if run.mode == "manual":
        why = (Review(rule="manual", why="In manual mode you see every draft first."), *why)
    if run.state is SessionState.PAUSED:
        why = (Review(rule="paused", why="It came while the run was paused."), *why)
    return why


def ask(run: Overlay, pending: PendingDraft) -> Transition:
    effect = moves.AskPerson(draft=pending.id, text=pending.text, reviews=pending.reviews)
    return Transition(replace(run, state=SessionState.READY_TO_SEND), (effect,))


def complete(run: Overlay, result: str) -> Transition:
    return end(replace(run, pending=None, result=result), SessionState.COMPLETED, "done")


def local_failed(run: Overlay, failed: DraftFailure) -> Transition:
    run = _failed(run, failed.reason, failed.recorded)
    if run.failures >= run.limits.max_failures:
        return end_at(run, "max_failures")
    if failed.hard:
        return Transition(replace(run, state=SessionState.ERROR, back=open_state(run)))
    if run.state is SessionState.PAUSED:
        return Transition(replace(run, back=open_state(run)))
    return next_turn(run)


def _failed(run: Overlay, reason: str, recorded: str) -> Overlay:
    return replace(run, failures=run.failures + 1, failure=reason, recorded_failure=recorded or reason)


# ── to the remote agent ───────────────────────────────────────────────────────────────────────────────────────────────


def send(run: Overlay, text: str, label: Label, now_ms: int, by: Person | None = None) -> Transition:
    """Send *text*: the pending draft, or what a person typed; *by* released it."""
    if limit := _limit(run):
        return end_at(run, limit)
    turn, draft = run.turn + 1, run.pending
    entry = TimelineEntry(
        role="user" if label == "yours" else "local_agent",
        text=text,
        turn=turn,
        at_ms=now_ms,
        took_ms=0 if draft is None else draft.took_ms,
        id=f"{run.id}.m{turn}",
        label=label,
        reviews=() if draft is None else draft.reviews,
        files=run.attached,
        number=run.entries + 1,
        original=(draft.original or draft.text) if draft is not None and label == "edited" else "",
        edited_by=_editor(draft, text, by) if label == "edited" else None,
        released_by=by,
    )
    run = replace(
        run,
        state=SessionState.READY_TO_SEND,
        turn=turn,
        typed_before=turn if run.is_plain_chat else run.typed_before,
        pending=None,
        guidance="",
        sending=entry.id,
        timeline=(*run.timeline, entry),
        attached=(),
        entries=entry.number,
    )
    return Transition(run, (moves.Send(id=entry.id, turn=turn, text=text, label=label, files=entry.files),))


def _editor(draft: PendingDraft | None, text: str, by: Person | None) -> Person | None:
    """Return who edited a draft: *by*, unless its text stayed as an earlier editor left it."""
    return draft.edited_by if draft is not None and draft.text == text else by


def sent(run: Overlay, message: str, now_ms: int) -> Transition | MoveRefused:
    if run.sending != message:
        return MoveRefused(f"the message {message} is not the one being sent ({run.sending or 'none'})")
    timeline = tuple(replace(entry, sent_ms=now_ms) if entry.id == message else entry for entry in run.timeline)
    run = replace(run, sending=None, timeline=timeline)
    if run.state is SessionState.PAUSED:
        return Transition(replace(run, back=SessionState.WAITING_REMOTE))
    return await_reply(run)


# ── from the remote agent ─────────────────────────────────────────────────────────────────────────────────────────────


def await_reply(run: Overlay) -> Transition:
    """Wait for the reply, or continue with one that has arrived already."""
    if run.kept:
        return next_turn(replace(with_kept(run), failures=0, failure="", recorded_failure=""))
    return Transition(replace(run, state=SessionState.WAITING_REMOTE))


def with_kept(run: Overlay) -> Overlay:
    return replace(run, timeline=(*run.timeline, *run.kept), kept=())


def arrived(run: Overlay, text: str, files: tuple[Attachment, ...], now_ms: int) -> Transition | MoveRefused:
    answered = list(run.timeline)
    while answered and answered[-1].role == "remote_agent":
        answered.pop()
    waited = max(0, now_ms - answered[-1].at_ms) if answered else 0
    number = run.entries + 1
    reply = TimelineEntry(
        role="remote_agent", text=text, turn=run.turn, at_ms=now_ms, took_ms=waited, number=number, files=files
    )
    unanswered = len(run.timeline) - len(answered)
    if unanswered + len(run.kept) >= MOST_UNANSWERED:
        return MoveRefused(f"the remote agent sent {MOST_UNANSWERED} messages without an answer; this one is dropped")
    run = replace(run, entries=number)
    if run.state is SessionState.WAITING_REMOTE:
        return await_reply(replace(run, kept=(*run.kept, reply)))
    if run.state in {SessionState.PAUSED, SessionState.ERROR} or run.sending:
        return Transition(replace(run, kept=(*run.kept, reply)))
    # Out of turn: the next prompt includes it, and the person who reviews a draft sees it.
    return Transition(replace(run, timeline=(*run.timeline, reply)))


def remote_failed(run: Overlay, reason: str, recorded: str, *, lost: bool) -> Transition | MoveRefused:
    if not run.sending and SessionState.WAITING_REMOTE not in {run.state, run.back}:
        return MoveRefused("no message is being sent that could have failed")
    is_unsent = lost and run.sending is not None
    run = replace(_failed(run, reason, recorded), sending=None, unsent=None)
    back = SessionState.WAITING_REMOTE
    if lost:
        run, back = _take_back(run, reason) if is_unsent else _lose(run, reason)
    if run.failures >= run.limits.max_failures:
        return end_at(run, "max_failures")
    return Transition(replace(run, state=SessionState.ERROR, back=back))


def _take_back(run: Overlay, reason: str) -> tuple[Overlay, SessionState]:
    """Return the run without its last message, which was refused here and never sent: it is a draft again.

    What a person typed stays in the timeline, marked as failed, so that the text is not lost; it is no turn.
    """
    (*earlier, entry), turn = run.timeline, run.turn - 1
    run = _attached_again(replace(run, typed_before=min(run.typed_before, turn)), entry)
    if run.decides == "person":
        unsent = replace(entry, turn=turn, id="", failed=reason, files=())
        run = replace(run, timeline=(*earlier, unsent), turn=turn)
        return run, open_state(run)
    why = Review(rule="held", why=f"It was not sent: {reason}")
    pending = _draft_again(entry, why)
    return replace(run, timeline=tuple(earlier), turn=turn, pending=pending), SessionState.READY_TO_SEND


def _lose(run: Overlay, reason: str) -> tuple[Overlay, SessionState]:
    """Return the run with its last message marked as lost; a person may send it again if the agent wrote it."""
    place = max(place for place, entry in enumerate(run.timeline) if entry.id)
    entry = run.timeline[place]
    failed = replace(entry, failed=reason)
    run = replace(run, timeline=(*run.timeline[:place], failed, *run.timeline[place + 1 :]))
    run = _attached_again(run, entry)
    if run.decides == "person":
        return run, open_state(run)
    why = Review(rule="lost", why="It was sent before and got no reply; it would be sent once more.")
    return replace(run, pending=_draft_again(failed, why)), SessionState.READY_TO_SEND


def _draft_again(entry: TimelineEntry, why: Review) -> PendingDraft:
    return PendingDraft(
        id=entry.id,
        text=entry.text,
        reviews=(why,),
        took_ms=entry.took_ms,
        original=entry.original,
        edited_by=entry.edited_by,
    )


def _attached_again(run: Overlay, entry: TimelineEntry) -> Overlay:
    """Return the run with the files of a message that was not sent or got lost: the next one carries them."""
    return replace(run, attached=(*entry.files, *(each for each in run.attached if each not in entry.files)))


# ── one step ──────────────────────────────────────────────────────────────────────────────────────────────────────────


__all__ = ["MoveRefused", "Overlay", "PendingDraft", "TimelineEntry", "Transition", "step"]

# The length of a rejected draft that the agent is reminded of.
_LONGEST_REMINDER = 500


def step(overlay: Overlay, event: Event, now_ms: int, by: Person | None = None) -> Transition | MoveRefused:
    """Return the run after *event* with its effects, or why the event is not possible.

    *now_ms* is the wall clock; if it is set back, no time has passed. *by* is the person who caused the event, if any.
    """
    allowed = TABLE.get((overlay.state, type(event)))
    if allowed is None:
        return MoveRefused(refusal(overlay.state, type(event)))
    # It is unknown how long a process that crashed was still active.
    active_ms = overlay.active_ms if isinstance(event, moves.Restarted) else overlay.spent_ms(now_ms)
    taken = _take(replace(overlay, active_ms=active_ms, since_ms=None), event, now_ms, by)
    if isinstance(taken, MoveRefused):
        return taken
    run = taken.overlay
    if run.questions and run.prompt is None:
        run = replace(run, questions=())
    if run.state not in allowed:
        raise IllegalMoveError(f"{type(event).__name__} cannot move a run from {overlay.state} to {run.state}")
    return Transition(replace(run, since_ms=now_ms) if _is_at_work(run) else run, taken.effects)


def _is_at_work(run: Overlay) -> bool:
    match run.state:
        case SessionState.WAITING_LOCAL:
            return not run.questions
        case SessionState.WAITING_REMOTE:
            return not run.is_plain_chat
        case SessionState.PLANNING | SessionState.PROCESSING_REMOTE:
            return run.decides == "agent"
        case SessionState.READY_TO_SEND:
            return run.pending is None
        case _:
            return False


def _take(run: Overlay, event: Event, now_ms: int, by: Person | None) -> Transition | MoveRefused:
    match event:
        case moves.Start():
            return _start(run)
        case moves.Prompted(id=prompt):
            return not_awaited(run, prompt) or Transition(replace(run, state=SessionState.WAITING_LOCAL))
        case moves.Drafted(id=prompt, draft=draft, reviews=reviews):
            answered = replace(run, prompt=None)
            return not_awaited(run, prompt) or drafted(answered, prompt, draft, reviews, now_ms)
        case moves.LocalFailed(id=prompt, failed=failed):
            return not_awaited(run, prompt) or local_failed(replace(run, prompt=None), failed)
        case moves.Asked(question=question):
            return _add_question(run, question)
        case moves.Decide(question=question, choice=choice):
            return _answer_question(run, question, choice)
        case moves.Unasked(question=question):
            return Transition(_without(run, question))
        case moves.Approve(draft=draft, text=text):
            return _approve(run, draft, text, now_ms, by)
        case moves.Reject(draft=draft, reason=reason):
            return _reject(run, draft, reason, now_ms, by)
        case moves.Sent(id=message):
            return sent(run, message, now_ms)
        case moves.Arrived(text=text, files=files):
            return arrived(run, text, files, now_ms)
        case moves.RemoteFailed(reason=reason, lost=lost, recorded=recorded):
            return remote_failed(run, reason, recorded, lost=lost)
        case moves.Pause():
            return _pause(run)
        case moves.Resume(agent=agent):
            return _resume(run if run.agent else replace(run, agent=agent))
        case moves.Stop():
            return end(run, SessionState.STOPPED, "user")
        case moves.TakeOver():
            return _take_over(run)
        case moves.HandBack():
            return _hand_back(run)
        case moves.Say(text=text):
            return _say(run, text, now_ms, by)
        case moves.Attach(file=file):
            return Transition(replace(run, attached=(*run.attached, file)))
        case moves.Detach(file=file):
            return _detach(run, file)
        case moves.Tick():
            return end_at(run, "max_duration_ms") if run.back is None and is_out_of_time(run) else Transition(run)
        case moves.Restarted():
            return Transition(_restarted(run))
        case moves.Revoked(why=why):
            return end(run, SessionState.STOPPED, "revoked", f"The run has ended: {why}")
        case moves.SetObjective(objective=objective):
            return _redirect(run, objective)
        case moves.SetMode(mode=mode):
            return Transition(replace(run, mode=mode))


# ── events of a person ────────────────────────────────────────────────────────────────────────────────────────────────


def _start(run: Overlay) -> Transition | MoveRefused:
    if run.decides == "agent" and not run.objective.strip():
        return MoveRefused("a run cannot start without an objective")
    return next_turn(run)


def _approve(run: Overlay, draft: str, text: str | None, now_ms: int, by: Person | None) -> Transition | MoveRefused:
    pending = run.pending
    if pending is None or pending.id != draft:
        return _not_pending(run, draft)
    if text is not None and not text.strip():
        return MoveRefused("an empty message cannot be sent; reject the draft instead")
    words = pending.text if text is None else text
    label = "approved" if words == (pending.original or pending.text) else "edited"
    return send(run, words, label, now_ms, by)


def _reject(run: Overlay, draft: str, reason: str, now_ms: int, by: Person | None) -> Transition | MoveRefused:
    pending = run.pending
    if pending is None or pending.id != draft:
        return _not_pending(run, draft)
    guidance = f"Your draft was not sent: {cut(pending.text, _LONGEST_REMINDER)}"
    if reason.strip():
        guidance = f"{guidance}\nThe reason: {reason}"
    rejected = RejectedDraft(
        number=run.entries + 1,
        id=pending.id,
        text=pending.text,
        turn=run.turn + 1,
        at_ms=now_ms,
        took_ms=pending.took_ms,
        reviews=pending.reviews,
        reason=reason,
        rejected_by=by,
    )
    run = replace(run, rejected=(*run.rejected, rejected), entries=rejected.number)
    return next_turn(replace(run, pending=None, guidance=guidance))


def _add_question(run: Overlay, question: PermissionRequest) -> Transition | MoveRefused:
    if run.prompt is None:
        return MoveRefused("the agent is not drafting for this run")
    return Transition(replace(run, questions=(*run.questions, question)))


def _answer_question(run: Overlay, question: str, choice: str | None) -> Transition | MoveRefused:
    request = next((each for each in run.questions if each.id == question), None)
    if request is None:
        return MoveRefused(f"the permission request {question[:100]} does not wait for an answer")
    chosen = next((each for each in request.choices if each.id == choice), None)
    if chosen is None and choice is not None:
        offered = ", ".join(each.id for each in request.choices)
        return MoveRefused(f"the agent does not offer the choice {choice[:100]}; it offers {offered}")
    permit = moves.Permit(question=question, choice=choice, kind="" if chosen is None else chosen.kind)
    return Transition(_without(run, question), (permit,))


def _without(run: Overlay, question: str) -> Overlay:
    return replace(run, questions=tuple(each for each in run.questions if each.id != question))


def _not_pending(run: Overlay, draft: str) -> MoveRefused:
    now = run.pending.id if run.pending else "none"
    return MoveRefused(f"the draft {draft} is not pending (pending: {now})")


def _say(run: Overlay, text: str, now_ms: int, by: Person | None) -> Transition | MoveRefused:
    if run.decides != "person":
        return MoveRefused("the agent writes the next message; take over first")
    if not text.strip():
        return MoveRefused("an empty message cannot be sent")
    return send(run, text, "yours", now_ms, by)


def _detach(run: Overlay, file: str) -> Transition | MoveRefused:
    left = tuple(each for each in run.attached if each.id != file)
    if left == run.attached:
        return MoveRefused(f"no file {file[:100]} waits for the next message")
    return Transition(replace(run, attached=left))


def _pause(run: Overlay) -> Transition:
    paused = replace(run, state=SessionState.PAUSED, back=run.state)
    if run.state in {SessionState.PLANNING, SessionState.PROCESSING_REMOTE}:
        # A prompt that was not started is cancelled; a draft in progress is kept when it arrives.
        return Transition(replace(paused, prompt=None), cancel(run))
    return Transition(paused)


def _resume(run: Overlay) -> Transition:
    back = run.back
    run = replace(run, back=None, failure="", recorded_failure="")
    if run.sending:
        return Transition(replace(run, state=SessionState.READY_TO_SEND))
    if back is SessionState.WAITING_REMOTE:
        return await_reply(run)
    run = with_kept(run)
    if run.pending is not None:
        return complete(run, run.pending.text) if run.pending.done else ask(run, run.pending)
    if back is SessionState.WAITING_LOCAL:
        return Transition(replace(run, state=back))
    return next_turn(run)


def _undraft(run: Overlay) -> Overlay:
    """Return the run without its current prompt or pending draft."""
    drafting = run.prompt or run.pending
    run = replace(run, prompt=None, pending=None, guidance="")
    if not drafting:
        return run
    left = open_state(run)
    return replace(run, state=left) if run.back is None else replace(run, back=left)


def _take_over(run: Overlay) -> Transition | MoveRefused:
    if run.decides == "person":
        return MoveRefused("a person has already taken over")
    return Transition(replace(_undraft(run), decides="person"), cancel(run))


def _hand_back(run: Overlay) -> Transition | MoveRefused:
    if run.decides == "agent":
        return MoveRefused("the agent already writes the next message")
    if not run.objective.strip():
        return MoveRefused("the agent needs an objective; set one first")
    run = replace(run, decides="agent")
    return next_turn(run) if run.state in {SessionState.PLANNING, SessionState.PROCESSING_REMOTE} else Transition(run)


def _redirect(run: Overlay, objective: str) -> Transition | MoveRefused:
    if not objective.strip():
        return MoveRefused("the objective must not be empty")
    run = replace(run, objective=objective)
    undrafted = _undraft(run)
    if run.back is not None or undrafted.state not in {SessionState.PLANNING, SessionState.PROCESSING_REMOTE}:
        return Transition(undrafted, cancel(run))
    if run.decides == "person":
        return Transition(run)
    following = next_turn(undrafted)
    return Transition(following.overlay, (*cancel(run), *following.effects))


# ── restart ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def outcome_of_sending(run: Overlay) -> moves.Sent | moves.RemoteFailed:
    """Return what became of the message that a run is sending: it is in the outbox, or it was refused here."""
    assert run.sending is not None, "asked only of a run that is sending"
    return moves.Sent(run.sending) if run.unsent is None else moves.RemoteFailed(run.unsent, lost=True)


def is_changed_by_restart(run: Overlay) -> bool:
    """Return whether `Restarted` changes a run; one that was paused already, or is in error, stays as it is."""
    return run.since_ms is not None or _restarted(run) != run


def _restarted(run: Overlay) -> Overlay:
    if run.state in {SessionState.IDLE, SessionState.ERROR}:
        return run
    paused = run if run.state is SessionState.PAUSED else replace(run, state=SessionState.PAUSED, back=run.state)
    # The agent that was drafting is gone.
    return replace(paused, prompt=None, back=open_state(run)) if run.prompt else paused
