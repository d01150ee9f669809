"""The document about the guard of coding tools."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class GuardedTool(Struct, frozen=True, kw_only=True):
    """A file of a coding tool that the guard was put into."""

    tool: Annotated[str, Meta(description="Its name on the command line.")]
    path: Annotated[str, Meta(description="The file.")]
    state: Annotated[
        Literal["heard", "silent", "gone"],
        Meta(
            description="`heard`: the tool was heard since the guard was put in; `silent`: not yet, so start a session "
            "of it; `gone`: the guard is no longer in the file."
        ),
    ]
    heard_ms: Annotated[
        int | None, Meta(description="When the tool was last heard, in milliseconds since 1970; null: never.")
    ]
    events: Annotated[int, Meta(description="Events heard since the guard was started.")]
    version: Annotated[str | None, Meta(description="The version that is installed; null: its command was not found.")]
    tried: Annotated[tuple[str, ...], Meta(description="The versions that the guard was tried with.")]
    obstacle: Annotated[
        str, Meta(description="What keeps the tool from running the guard, and what to do; empty: nothing is known.")
    ] = ""

    @property
    def is_untried(self) -> bool:
        """Whether the version that is installed was not tried."""
        return self.version is not None and self.version not in self.tried


class GuardReport(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.guard-status/1"):
    """Whether the guard of coding tools works. Printed by `remit guard status --json`."""

    ok: Annotated[bool, Meta(description="Whether it runs, is in all of its files, and nothing keeps it out.")]
    process: Annotated[int | None, Meta(description="The process that answers; null: none does.")]
    unanswering: Annotated[
        str | None, Meta(description="The process of a guard that runs but does not answer; null: there is none.")
    ] = None
    sessions: Annotated[int, Meta(description="Sessions that are open.")]
    tools: Annotated[tuple[GuardedTool, ...], Meta(description="The files that it was put into.")]
