"""A run of two agents as JSON documents, without keys, tokens or encrypted text."""

from remit_relay.commands.shared.wording import Connection
from remit_relay.local_api.public_runs import DeliveryView, EntryView, SharedRunView
from remit_relay.session.moves import SessionState
from remit_server.documents.shared import SharedDelivery, SharedDraft, SharedReview, SharedRun, SharedState, SharedTurn


def turn(run: SharedRunView, entry: EntryView) -> SharedTurn:
    """Return one message."""
    return SharedTurn(
        run=run.id,
        turn=entry.turn,
        speaker=entry.role,
        text=entry.text,
        label=None if entry.label == "rejected" else entry.label,
        at_ms=entry.at_ms,
        took_ms=entry.took_ms,
        failed=entry.failed,
        delivery=None if entry.delivery is None else entry.delivery.state,
    )


def delivery(run: SharedRunView, turn: int, progress: DeliveryView) -> SharedDelivery:
    """Return the new state of the message of a turn."""
    return SharedDelivery(run=run.id, turn=turn, state=progress.state, since_ms=progress.since_ms, why=progress.why)


def draft(run: SharedRunView, device_name: str) -> SharedDraft | None:
    """Return the pending draft, or the one that was unsent at the end."""
    if run.draft is None:
        return None
    return SharedDraft(
        draft=run.draft.id,
        run=run.id,
        profile=run.profile,
        device=run.device,
        device_name=device_name,
        objective=run.objective,
        turn=run.turn + 1,
        text=run.draft.text,
        reviews=tuple(SharedReview(rule=each.rule, why=each.why) for each in run.draft.reviews),
        paused=run.state in {SessionState.PAUSED, SessionState.ERROR},
    )


def state(run: SharedRunView, connection: Connection) -> SharedState:
    """Return the state of a run."""
    return SharedState(
        run=run.id,
        profile=run.profile,
        device=run.device,
        agent=run.agent,
        objective=run.objective,
        mode=run.mode,
        state=run.state.value,
        decides=run.decides,
        connection=connection,
        turn=run.turn,
        max_turns=run.max_turns,
        active_ms=run.active_ms,
        max_duration_ms=run.max_duration_ms,
        tokens=run.tokens,
        max_tokens=run.max_tokens,
        failure=run.failure,
        ended=run.ended,
        banner=run.banner,
        result=run.result,
    )


def whole(run: SharedRunView, connection: Connection, device_name: str) -> SharedRun:
    """Return a run with all messages."""
    now = state(run, connection)
    shared = {name: getattr(now, name) for name in now.__struct_fields__}
    turns = tuple(turn(run, each) for each in (*run.timeline, *run.kept_replies))
    return SharedRun(**shared, draft=draft(run, device_name), turns=turns)
