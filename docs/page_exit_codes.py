"""The page of exit codes: what each means, and which error codes end a command with it."""

import re

from page_cli import HEAD as COMMANDS
from remit.protocol.errors import TABLE

HEAD = """\
# Exit codes

What a command's exit code tells a script. A command that ends because of an error prints its code on stderr, or with
`--json` as [remit.error/1](cli-json.md#remiterror1). This page is made from the code; `make docs` makes it anew.

| exit code | meaning | error codes |
|---|---|---|
"""

TAIL = """
```bash
remit run tax-ai "Can I deduct this?" --json > answer.json
case $? in
  0) jq .result answer.json ;;
  6 | 7) echo "try again later" ;;
  *) echo "failed" ;;
esac
```
"""


def exit_codes_page() -> str:
    """Return the page of exit codes."""
    meanings: list[tuple[str, str]] = re.findall(r"^\| (\d+) \| (.+) \|$", COMMANDS, re.MULTILINE)
    rows = [f"| {number} | {meaning} | {_codes(int(number))} |\n" for number, meaning in meanings]
    return HEAD + "".join(rows) + TAIL


def _codes(number: int) -> str:
    return ", ".join(f"[{code}](errors.md#{code.lower()})" for code, row in TABLE.items() if row.exit_code == number)
