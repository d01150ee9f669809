"""Looks up the packages of all locks among the known vulnerabilities, with pip-audit: `make audit`.

It ends with 0 if every package was looked up and none is affected, with 1 if one is, and with 3 if some could not be
looked up. pip-audit itself says "No known vulnerabilities found" in that last case.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).resolve().parents[1]
AFFECTED, NO_DATA = 1, 3


class Vulnerability(msgspec.Struct):
    """A known vulnerability of a package."""

    id: str
    fix_versions: list[str] = []


class Audited(msgspec.Struct):
    """What pip-audit says of one package."""

    name: str
    version: str = ""
    vulns: list[Vulnerability] = []
    skip_reason: str | None = None


class _Report(msgspec.Struct):
    dependencies: list[Audited]


class LockAudit(NamedTuple):
    """What is known of the packages of a lock."""

    affected: list[str]
    checked: int
    unknown: list[str]
    """Why packages could not be looked up."""


def audit(pip_audit: Sequence[str], lock: Path) -> LockAudit:
    """Look up the packages of a lock."""
    options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(
        [*pip_audit, *options, "--requirement", str(lock)], check=False, capture_output=True, text=True
    )
    try:
        packages = msgspec.json.decode(done.stdout, type=_Report).dependencies
    except msgspec.DecodeError:
        reason = (done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode}"])[-1]
        return LockAudit([], 0, [reason])
    affected = [
        f"{each.name} {each.version}: {one.id}, fixed in {', '.join(one.fix_versions) or 'no version yet'}"
        for each in packages
        for one in each.vulns
    ]
    unknown = [each.skip_reason for each in packages if each.skip_reason is not None]
    return LockAudit(affected, len(packages) - len(unknown), unknown)


def main() -> int:
    """Audit every lock with the pip-audit that is named, and return the exit code."""
    audits = {lock.name: audit(sys.argv[1:2], lock) for lock in map(Path, sys.argv[2:])}
    for name, report in audits.items():
        for line in report.affected:
            print(f"{name}: VULNERABLE: {line}")
        if report.unknown:
            print(f"{name}: NOT AUDITED: {len(report.unknown)} could not be looked up, the first: {report.unknown[0]}")
        if report.checked:
            print(f"{name}: {report.checked} packages were looked up, {len(report.affected)} vulnerabilities are known")
    if any(report.affected for report in audits.values()):
        return AFFECTED
    if not audits or any(report.unknown or not report.checked for report in audits.values()):
        print(
            "The audit has no data for what is listed above, so nothing is known about it. "
            "Run it again where https://pypi.org can be reached.",
            file=sys.stderr,
        )
        return NO_DATA
    return 0


if __name__ == "__main__":
    sys.exit(main())
