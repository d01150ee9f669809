"""Team files with what is wrong in them: `transcripts/errors_of_team_files.txt`, which `--transcripts` writes anew."""

from collections.abc import Callable
from pathlib import Path

import pytest

from remit import RemitError
from remit.installed import install_command
from remit_cli.config.load import load_team

FILE = Path(__file__).parent / "transcripts" / "errors_of_team_files.txt"


@pytest.fixture
def transcript(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return what compares a text with the file, or writes it anew."""

    def compare(text: str) -> None:
        if request.config.getoption("--transcripts", default=False):
            FILE.write_text(text, encoding="utf-8")
        assert text.split("\n\n") == FILE.read_text(encoding="utf-8").split("\n\n"), "if it is right: make transcripts"

    return compare


def errors(folder: Path, block: str) -> str:
    """Return a block with the errors of its team file; lines that begin with `$` are environment variables."""
    source = block.partition("\n=>")[0]
    lines = source.split("\n")
    environ = dict(line.removeprefix("$ ").split("=", 1) for line in lines if line.startswith("$ "))
    file = folder / "remit.toml"
    file.write_text("\n".join(line for line in lines if not line.startswith(("$ ", "# "))), encoding="utf-8")
    with pytest.raises(RemitError) as raised:
        load_team(file, environ=environ)
    problems = [f"{each.path}: {each.message}" for each in raised.value.fault.problems]
    text = "\n".join([source, "=>", *problems]).replace(str(folder), "FOLDER")
    return text.replace(install_command("intent"), "pip install '.[intent]'")


def test_each_error_names_its_line_and_key_and_what_to_do(
    folder: Path, transcript: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (folder / "keys.json").write_text('{"keys": []}', encoding="ascii")
    blocks = FILE.read_text(encoding="utf-8").strip("\n").split("\n\n")
    transcript("\n\n".join(block if block.startswith("# ") else errors(folder, block) for block in blocks) + "\n")
