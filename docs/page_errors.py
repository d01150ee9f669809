"""The page of error codes, from the table in the code."""

from remit.protocol.errors import TABLE, Blame, Code, ErrorRow

HEAD = """\
# Error codes

Every way a delegation can go wrong has one code. A code is stable and never reused. Programs read the code, people the
message. The command line explains them too:

```console
$ remit errors LOOP_DETECTED
```

| field | what it says |
|---|---|
| fault of | who must change something before it can work: the caller, the peer (the callee), or the hub |
| HTTP | the status that stands for it over HTTP |
| exit | the exit code of a command that ends with it |
| recoverable | whether trying again can help: later, elsewhere, or with other limits |

This page is made from the table in `packages/core/src/remit/protocol/errors.py`; `.venv/bin/python docs/generate.py`
makes it anew.

"""

FAULT_OF = {Blame.CALLER: "the caller", Blame.PEER: "the peer", Blame.HUB: "the hub"}


def errors_page() -> str:
    """Return the page of error codes."""
    lines = ["| code | fault of | HTTP | exit | recoverable |", "|---|---|---|---|---|"]
    lines += [_line(code, row) for code, row in TABLE.items()]
    return HEAD + "\n".join(lines) + "\n" + "".join(_section(code, row) for code, row in TABLE.items())


def _line(code: Code, row: ErrorRow) -> str:
    cells = (f"[{code}](#{code.lower()})", FAULT_OF[row.blame], str(row.status), str(row.exit_code), _yes(row))
    return "| " + " | ".join(cells) + " |"


def _section(code: Code, row: ErrorRow) -> str:
    return f"""
## {code}

{row.meaning}

- Fault of {FAULT_OF[row.blame]}. HTTP status {row.status}. Exit code {row.exit_code}. Recoverable: {_yes(row)}.
- What to do: {row.suggestion}
"""


def _yes(row: ErrorRow) -> str:
    return "yes" if row.recoverable else "no"
