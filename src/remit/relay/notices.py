"""Which changes of a run need a person. Pure."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from remit.relay.session.moves import SessionState
from remit.relay.session.run import Overlay

NoticeKind = Literal["draft", "permission", "error", "limit", "revoked", "done"]

TITLES: dict[NoticeKind, str] = {
    "draft": "A draft needs your review",
    "permission": "Your agent asks for permission",
    "error": "A run was stopped by an error",
    "limit": "A run has ended at its limit",
    "revoked": "A run has ended: a device was revoked",
    "done": "The objective is met",
}


class RunNotice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a person should know about a run; it has no words of the agents but in `text`."""

    id: str
    """The same for the same occasion, also after a restart."""
    kind: NoticeKind
    run: str
    profile: str
    device: str
    turn: int
    """The turn that it is about, from 1."""
    text: str = ""
    """The draft, the question, the failure or the result, if texts are wanted."""

    @property
    def title(self) -> str:
        return TITLES[self.kind]


def notices_of(run: Overlay) -> Iterator[RunNotice]:
    """Yield what a person should know about a run as it stands now; a run that its user stopped needs nobody."""
    if run.state is SessionState.READY_TO_SEND and run.draft is not None:
        yield _notice(run, "draft", run.draft.id, run.draft.text)
    for question in run.questions:
        yield _notice(run, "permission", question.id, question.title)
    if run.state is SessionState.ERROR:
        # The next failure is another occasion, although nothing was sent in between.
        yield _notice(run, "error", f"{run.turn}.{run.prompts}.{run.failures}", run.failure)
    if run.ended == "done":
        yield _notice(run, "done", "", run.result)
    elif run.ended is not None and run.ended != "user":
        yield _notice(run, "revoked" if run.ended == "revoked" else "limit", run.ended, run.banner)


def needs_person(run: Overlay) -> bool:
    """Return whether a run does not go on without a person."""
    return any(each.kind in ("draft", "permission", "error") for each in notices_of(run))


def _notice(run: Overlay, kind: NoticeKind, occasion: str, text: str) -> RunNotice:
    turn = run.turn + 1 if kind in ("draft", "permission") else max(1, run.turn)
    key = f"{run.id}:{kind}:{occasion}"
    return RunNotice(id=key, kind=kind, run=run.id, profile=run.profile, device=run.device, turn=turn, text=text)
