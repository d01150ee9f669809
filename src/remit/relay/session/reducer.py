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
from remit.relay.bridge.ports import PermissionRequest
from remit.relay.session import transitions
from remit.relay.session.moves import (
    TABLE,
    Approve,
    Arrived,
    Asked,
    Attach,
    Decide,
    Detach,
    Drafted,
    Event,
    HandBack,
    LocalFailed,
    Pause,
    Permit,
    Prompted,
    Reject,
    RemoteFailed,
    Restarted,
    Resume,
    Revoked,
    Say,
    Sent,
    SessionState,
    SetMode,
    SetObjective,
    Start,
    Stop,
    TakeOver,
    Tick,
    Unasked,
    refusal,
)
from remit.relay.session.run import MoveRefused, Overlay, PendingDraft, Person, RejectedDraft, TimelineEntry, Transition
from remit.text.sentences import cut

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
    active_ms = overlay.active_ms if isinstance(event, Restarted) else overlay.spent_ms(now_ms)
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
        case Start():
            return _start(run)
        case Prompted(id=prompt):
            return transitions.not_awaited(run, prompt) or Transition(replace(run, state=SessionState.WAITING_LOCAL))
        case Drafted(id=prompt, draft=draft, reviews=reviews):
            answered = replace(run, prompt=None)
            return transitions.not_awaited(run, prompt) or transitions.drafted(answered, prompt, draft, reviews, now_ms)
        case LocalFailed(id=prompt, failed=failed):
            return transitions.not_awaited(run, prompt) or transitions.local_failed(replace(run, prompt=None), failed)
        case Asked(question=question):
            return _asked(run, question)
        case Decide(question=question, choice=choice):
            return _answered(run, question, choice)
        case Unasked(question=question):
            return Transition(_without(run, question))
        case Approve(draft=draft, text=text):
            return _approve(run, draft, text, now_ms, by)
        case Reject(draft=draft, reason=reason):
            return _reject(run, draft, reason, now_ms, by)
        case Sent(id=message):
            return transitions.sent(run, message, now_ms)
        case Arrived(text=text, files=files):
            return transitions.arrived(run, text, files, now_ms)
        case RemoteFailed(reason=reason, lost=lost, recorded=recorded):
            return transitions.remote_failed(run, reason, recorded, lost=lost)
        case Pause():
            return _pause(run)
        case Resume(agent=agent):
            return _resume(run if run.agent else replace(run, agent=agent))
        case Stop():
            return transitions.end(run, SessionState.STOPPED, "user")
        case TakeOver():
            return _take_over(run)
        case HandBack():
            return _hand_back(run)
        case Say(text=text):
            return _say(run, text, now_ms, by)
        case Attach(file=file):
            return Transition(replace(run, attached=(*run.attached, file)))
        case Detach(file=file):
            return _detach(run, file)
        case Tick():
            return (
                transitions.end_at(run, "max_duration_ms")
                if run.back is None and transitions.is_out_of_time(run)
                else Transition(run)
            )
        case Restarted():
            return Transition(_restarted(run))
        case Revoked(why=why):
            return transitions.end(run, SessionState.STOPPED, "revoked", f"The run has ended: {why}")
        case SetObjective(objective=objective):
            return _redirect(run, objective)
        case SetMode(mode=mode):
            return Transition(replace(run, mode=mode))


# ── events of a person ────────────────────────────────────────────────────────────────────────────────────────────────


def _start(run: Overlay) -> Transition | MoveRefused:
    if run.decides == "agent" and not run.objective.strip():
        return MoveRefused("a run cannot start without an objective")
    return transitions.next_turn(run)


def _approve(run: Overlay, draft: str, text: str | None, now_ms: int, by: Person | None) -> Transition | MoveRefused:
    pending = run.pending
    if pending is None or pending.id != draft:
        return _not_pending(run, draft)
    if text is not None and not text.strip():
        return MoveRefused("an empty message cannot be sent; reject the draft instead")
    words = pending.text if text is None else text
    label = "approved" if words == (pending.original or pending.text) else "edited"
    return transitions.send(run, words, label, now_ms, by)


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
    return transitions.next_turn(replace(run, pending=None, guidance=guidance))


def _asked(run: Overlay, question: PermissionRequest) -> Transition | MoveRefused:
    if run.prompt is None:
        return MoveRefused("the agent is not drafting for this run")
    return Transition(replace(run, questions=(*run.questions, question)))


def _answered(run: Overlay, question: str, choice: str | None) -> Transition | MoveRefused:
    asked = next((each for each in run.questions if each.id == question), None)
    if asked is None:
        return MoveRefused(f"the permission request {question[:100]} does not wait for an answer")
    chosen = next((each for each in asked.choices if each.id == choice), None)
    if chosen is None and choice is not None:
        offered = ", ".join(each.id for each in asked.choices)
        return MoveRefused(f"the agent does not offer the choice {choice[:100]}; it offers {offered}")
    permit = Permit(question=question, choice=choice, kind="" if chosen is None else chosen.kind)
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
    return transitions.send(run, text, "yours", now_ms, by)


def _detach(run: Overlay, file: str) -> Transition | MoveRefused:
    left = tuple(each for each in run.attached if each.id != file)
    if left == run.attached:
        return MoveRefused(f"no file {file[:100]} waits for the next message")
    return Transition(replace(run, attached=left))


def _pause(run: Overlay) -> Transition:
    paused = replace(run, state=SessionState.PAUSED, back=run.state)
    if run.state in {SessionState.PLANNING, SessionState.PROCESSING_REMOTE}:
        # A prompt that was not started is cancelled; a draft in progress is kept when it arrives.
        return Transition(replace(paused, prompt=None), transitions.cancel(run))
    return Transition(paused)


def _resume(run: Overlay) -> Transition:
    back = run.back
    run = replace(run, back=None, failure="", recorded_failure="")
    if run.sending:
        return Transition(replace(run, state=SessionState.READY_TO_SEND))
    if back is SessionState.WAITING_REMOTE:
        return transitions.await_reply(run)
    run = transitions.with_kept(run)
    if run.pending is not None:
        return transitions.complete(run, run.pending.text) if run.pending.done else transitions.ask(run, run.pending)
    if back is SessionState.WAITING_LOCAL:
        return Transition(replace(run, state=back))
    return transitions.next_turn(run)


def _undraft(run: Overlay) -> Overlay:
    """Return the run without its current prompt or pending draft."""
    drafting = run.prompt or run.pending
    run = replace(run, prompt=None, pending=None, guidance="")
    if not drafting:
        return run
    left = transitions.open_state(run)
    return replace(run, state=left) if run.back is None else replace(run, back=left)


def _take_over(run: Overlay) -> Transition | MoveRefused:
    if run.decides == "person":
        return MoveRefused("a person has already taken over")
    return Transition(replace(_undraft(run), decides="person"), transitions.cancel(run))


def _hand_back(run: Overlay) -> Transition | MoveRefused:
    if run.decides == "agent":
        return MoveRefused("the agent already writes the next message")
    if not run.objective.strip():
        return MoveRefused("the agent needs an objective; set one first")
    run = replace(run, decides="agent")
    return (
        transitions.next_turn(run)
        if run.state in {SessionState.PLANNING, SessionState.PROCESSING_REMOTE}
        else Transition(run)
    )


def _redirect(run: Overlay, objective: str) -> Transition | MoveRefused:
    if not objective.strip():
        return MoveRefused("the objective must not be empty")
    run = replace(run, objective=objective)
    undrafted = _undraft(run)
    if run.back is not None or undrafted.state not in {SessionState.PLANNING, SessionState.PROCESSING_REMOTE}:
        return Transition(undrafted, transitions.cancel(run))
    if run.decides == "person":
        return Transition(run)
    following = transitions.next_turn(undrafted)
    return Transition(following.overlay, (*transitions.cancel(run), *following.effects))


# ── restart ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def outcome_of_sending(run: Overlay) -> Sent | RemoteFailed:
    """Return what became of the message that a run is sending: it is in the outbox, or it was refused here."""
    assert run.sending is not None, "asked only of a run that is sending"
    return Sent(run.sending) if run.unsent is None else RemoteFailed(run.unsent, lost=True)


def is_changed_by_restart(run: Overlay) -> bool:
    """Return whether `Restarted` changes a run; one that was paused already, or is in error, stays as it is."""
    return run.since_ms is not None or _restarted(run) != run


def _restarted(run: Overlay) -> Overlay:
    if run.state in {SessionState.IDLE, SessionState.ERROR}:
        return run
    paused = run if run.state is SessionState.PAUSED else replace(run, state=SessionState.PAUSED, back=run.state)
    # The agent that was drafting is gone.
    return replace(paused, prompt=None, back=transitions.open_state(run)) if run.prompt else paused
