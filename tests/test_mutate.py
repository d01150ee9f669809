"""`make mutate` changes guards and rules, and tells what no test notices."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mutate
from waiting import PATIENCE_S

RULES = '''
"""Words."""

MOST = 3


def judge(given: int, facts: "Facts"):
    if given > MOST and not facts.known:
        return refuse("TOO_MUCH", f"{given == 1}")
    assert given < 9
    return [each for each in facts if each]
'''

PROGRAM = """
import mutate
path = mutate.SOURCE / "remit" / "policy" / "budget.py"
every = mutate.mutations(path)
same = every[0]._replace(source=path.read_bytes() + b"# a remark changes nothing")
tests = [mutate.CORE / "tests" / "policy" / "test_budget.py"]
assert mutate.survivors([every[0], same], 2, lambda _: tests) == [same]
"""


def test_comparisons_conditions_refusals_and_constants_are_changed(tmp_path: Path) -> None:
    module = tmp_path / "rules.py"
    module.write_text(RULES, encoding="utf-8")
    assert [(each.line, each.before, each.after) for each in mutate.mutations(module)] == [
        (4, "3", "4"),
        (8, "given > MOST", "(given >= MOST)"),
        (8, "given > MOST and not facts.known", "(given > MOST or not facts.known)"),
        (8, "given > MOST and not facts.known", "(not (given > MOST and (not facts.known)))"),
        (9, 'return refuse("TOO_MUCH", f"{given == 1}")', "pass"),
        (11, "each", "(not (each))"),
    ]
    for mutation in mutate.mutations(module):
        assert compile(mutation.source, module, "exec")


def test_a_seed_draws_the_same_changes_again() -> None:
    assert mutate.drawn("7", 20) == mutate.drawn("7", 20) != mutate.drawn("8", 20)


@pytest.mark.parametrize("path", mutate.MODULES, ids=lambda path: path.stem)
def test_every_module_that_is_changed_has_tests(path: Path) -> None:
    assert mutate.mutations(path) or path.name == "__init__.py"
    assert all(each.is_file() for each in mutate.tests_of(path))


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")
def test_a_change_that_a_test_notices_is_caught_and_one_without_effect_survives() -> None:
    # Not one that has imported the module already.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=mutate.ROOT,
        env={**os.environ, "PYTHONPATH": str(mutate.ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout.count("caught"), done.stdout.count("SURVIVES")) == (0, 1, 1), done
