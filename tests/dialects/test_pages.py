"""Every field of a document is on the page of its dialect."""

from pathlib import Path

import pytest
from msgspec import Struct

from remit.dialects import NAMES, contract, employee_words, intents, librarian_words, subagent

DOCS = Path(__file__).resolve().parents[2] / "docs"

FIELDS: dict[str, tuple[type[Struct], ...]] = {
    "employee": (
        employee_words.DelegationRequest,
        employee_words.EmployeeConstraints,
        employee_words.HandoffData,
        employee_words.Reference,
        employee_words.DelegationResponse,
        employee_words.TokenUsage,
        employee_words.UsedSource,
    ),
    "librarian": (
        librarian_words.LibrarianRequest,
        librarian_words.DelegationContext,
        librarian_words.LibrarianResponse,
        librarian_words.LibrarianError,
        librarian_words.DelegateRequest,
        librarian_words.DelegateContext,
    ),
    "contract": (
        contract.ContractRequest,
        contract.Context,
        contract.ContractResponse,
        contract.Metadata,
        intents.IntentClassification,
        intents.IntentTarget,
    ),
    "subagent": (subagent.SubAgentCall, subagent.SubAgentArgs, subagent.SubAgentContext, subagent.SubAgentResult),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_on_the_page(name: str) -> None:
    page = (DOCS / f"dialect-{name}.md").read_text(encoding="utf-8")
    missing = {
        field
        for kind in FIELDS[name]
        for field in kind.__struct_encode_fields__
        if not any(written in page for written in (f"`{field}`", f"`{field}.", f".{field}`"))
    }
    assert missing == set()


def test_every_dialect_is_in_the_overview() -> None:
    overview = (DOCS / "dialects.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"[dialect-{name}.md](dialect-{name}.md)" not in overview] == []
