"""`make audit` never takes what it could not look up for what is not vulnerable."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from audit_locks import AFFECTED, NO_DATA, ROOT

SAFE: dict[str, object] = {"name": "click", "version": "8.1", "vulns": []}
WRONG = {"name": "old", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
SKIPPED = {"name": "idna", "skip_reason": "Dependency not found on PyPI and could not be audited: idna (3.10)"}


def audited(folder: Path, *packages: object, code: int = 0, error: str = "") -> subprocess.CompletedProcess[str]:
    """Run the audit of one lock with a pip-audit that prints this."""
    printed = json.dumps({"dependencies": packages, "fixes": []}) if packages else ""
    fake = folder / "pip-audit"
    fake.write_text(
        f"#!{sys.executable}\nimport sys\nprint({printed!r})\nprint({error!r}, file=sys.stderr)\nsys.exit({code})\n"
    )
    fake.chmod(0o700)
    command = [sys.executable, ROOT / "tests" / "audit_locks.py", fake, folder / "requirements.lock"]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("packages", [(SKIPPED,), (SAFE, SKIPPED), ()])
def test_an_audit_without_data_says_so_and_ends_with_a_code_of_its_own(
    packages: tuple[object, ...], tmp_path: Path
) -> None:
    # pip-audit ends with 0, and says that it found nothing, if no package could be looked up.
    error = "No known vulnerabilities found" if packages else "ERROR:pip_audit._cli:HTTPSConnectionPool"
    done = audited(tmp_path, *packages, code=0 if packages else 1, error=error)
    assert done.returncode == NO_DATA
    assert "requirements.lock: NOT AUDITED: 1 could not be looked up" in done.stdout
    assert "nothing is known about it" in done.stderr
    assert "No known vulnerabilities" not in done.stdout


def test_a_known_vulnerability_is_named_with_the_version_that_fixes_it(tmp_path: Path) -> None:
    done = audited(tmp_path, SAFE, WRONG, SKIPPED, code=1)
    assert done.returncode == AFFECTED
    assert "VULNERABLE: old 1.0: PYSEC-1, fixed in 1.1" in done.stdout


def test_an_audit_of_everything_ends_well(tmp_path: Path) -> None:
    done = audited(tmp_path, SAFE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "requirements.lock: 1 packages were looked up, 0 vulnerabilities are known\n"
