"""A team from its file: what is found, what counts more, and everything that is wrong at once."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent

import pytest

from remit import Code, Problem, RemitError
from remit_cli.config.load import load_team
from remit_cli.config.team import Team, team_type
from remit_cli.config.team_search import find_team

KEY = "00" * 32


def load(
    folder: Path,
    text: str,
    *,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = {},
    secrets: bool = True,
    code: bool = True,
) -> Team:
    file = folder / "remit.toml"
    file.write_text(dedent(text), encoding="utf-8")
    return load_team(file, overrides=overrides, environ=environ, secrets=secrets, code=code)


def wrong_in(
    folder: Path, text: str, *, overrides: Sequence[str] = (), environ: Mapping[str, str] = {}
) -> list[tuple[str, str]]:
    with pytest.raises(RemitError) as raised:
        load(folder, text, overrides=overrides, environ=environ)
    assert raised.value.fault.code is Code.TEAM_INVALID
    return [(each.path, each.message) for each in raised.value.fault.problems]


# ── finding ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_file_is_found_in_the_nearest_folder_above(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert find_team(start=deep, environ={}) is None
    (tmp_path / "remit.toml").touch()
    assert find_team(start=deep, environ={}) == tmp_path / "remit.toml"
    (tmp_path / "a" / "remit.toml").touch()
    assert find_team(start=deep, environ={}) == tmp_path / "a" / "remit.toml"


def test_nothing_is_looked_for_above_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (tmp_path / "remit.toml").touch()
    monkeypatch.setenv("HOME", str(home))
    assert find_team(start=home / "work", environ={}) is None
    (home / "remit.toml").touch()
    assert find_team(start=home / "work", environ={}) == home / "remit.toml"


def test_a_variable_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").touch()
    assert find_team(start=tmp_path, environ={"REMIT_TEAM": "/elsewhere/team.toml"}) == Path("/elsewhere/team.toml")
    assert find_team(start=tmp_path / "x", environ={"REMIT_TEAM": str(tmp_path)}) == tmp_path / "remit.toml"


def test_the_search_starts_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "remit.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert find_team(environ={}) == tmp_path / "remit.toml"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RemitError, match=r"remit.toml: there is no such file\n.*`remit init`"):
        load_team(tmp_path / "remit.toml")
    with pytest.raises(RemitError, match="cannot be read: Is a directory"):
        load_team(tmp_path)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_file_is_a_team_of_nobody(folder: Path) -> None:
    team = load(folder, "")
    assert team == team_type()(file=folder / "remit.toml")
    assert team.store_path == folder / ".remit" / "hub.db"


def test_comments_and_the_mark_of_some_editors_are_no_part_of_it(folder: Path) -> None:
    (folder / "remit.toml").write_bytes(b'\xef\xbb\xbf#:schema ./remit.schema.json\r\nname = "office"\r\n')
    assert load_team(folder / "remit.toml", environ={}).name == "office"


def test_one_wrong_thing_is_said_in_one_sentence(folder: Path) -> None:
    with pytest.raises(RemitError) as raised:
        load(folder, "[limits]\nmax_dept = 3\n")
    assert str(raised.value) == (
        f"TEAM_INVALID: one thing is wrong in {folder / 'remit.toml'}\n"
        "  remit.toml:2 limits.max_dept: unknown key; did you mean `max_depth`?\n"
        "  → Correct what is named; `remit validate` checks the file without running an agent."
    )


def test_a_file_that_is_not_text_is_refused_at_its_line(folder: Path) -> None:
    (folder / "remit.toml").write_bytes(b'name = "a"\n# \xff\n')
    with pytest.raises(RemitError) as raised:
        load_team(folder / "remit.toml")
    assert raised.value.fault.problems == (Problem("remit.toml:2", "this is not text in UTF-8"),)


def test_what_a_capability_says_of_its_answers_reaches_its_card(folder: Path) -> None:
    team = load(folder, '[capabilities.LOOK]\nread_only = true\ncache = "1m"\ncache_similar = true\nhedge = "500ms"')
    capability = team.capabilities["LOOK"].capability("LOOK")
    assert (capability.cache_ms, capability.cache_similar, capability.hedge_ms) == (60_000, True, 500)


# ── code ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("x = 1\nraise ValueError('no')", "importing `broken` failed at broken.py:2: ValueError: no"),
        ("def (", "importing `broken` failed at broken.py:1: SyntaxError: invalid syntax"),
        (
            "import no_such_thing",
            "importing `broken` failed at broken.py:1: ModuleNotFoundError: No module named 'no_such_thing'",
        ),
        ("raise SystemExit(3)", "importing `broken` failed at broken.py:1: SystemExit: 3"),
    ],
)
def test_code_that_cannot_be_imported_says_where(folder: Path, module: str, message: str) -> None:
    (folder / "broken.py").write_text(module, encoding="utf-8")
    assert wrong_in(folder, '[agents.a]\nrun = "broken:a"\n') == [("remit.toml:2 agents.a.run", message)]


def test_a_module_whose_name_is_taken_is_refused(folder: Path) -> None:
    (folder / "json.py").write_text("def tag(brief): ...", encoding="utf-8")
    (folder / "sys.py").write_text("def tag(brief): ...", encoding="utf-8")
    problems = dict(wrong_in(folder, '[agents.a]\nrun = "json:tag"\n[agents.b]\nrun = "sys:tag"'))
    assert "a module `json` is loaded already, from" in problems["remit.toml:2 agents.a.run"]
    assert f"give {folder / 'json.py'} another name" in problems["remit.toml:2 agents.a.run"]
    assert "from Python itself" in problems["remit.toml:4 agents.b.run"]


def test_code_in_packages_classes_and_objects_is_found(folder: Path) -> None:
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "desk.py").write_text(
        "class Desk:\n    @staticmethod\n    def front(brief): ...\n    def __call__(self, brief): ...\ndesk = Desk()",
        encoding="utf-8",
    )
    load(folder, '[agents.a]\nrun = "shop.desk:Desk.front"\n[agents.b]\nrun = "shop.desk:desk"')
    assert wrong_in(folder, '[agents.a]\nrun = "shop.desc:desk"') == [
        (
            "remit.toml:2 agents.a.run",
            f"there is no module `shop.desc` in {folder} or where Python looks; did you mean `shop.desk`?",
        )
    ]


def test_a_function_that_does_not_say_what_it_takes_is_taken_at_its_word(folder: Path) -> None:
    (folder / "odd.py").write_text("agent = max", encoding="utf-8")
    load(folder, '[agents.a]\nrun = "odd:agent"')


def test_without_code_nothing_is_imported(folder: Path) -> None:
    (folder / "loud.py").write_text("raise ValueError", encoding="utf-8")
    assert load(folder, '[agents.a]\nrun = "loud:a"', code=False).agents["a"].run == "loud:a"
    assert "loud" not in sys.modules


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def it(*words): ...", "`odd:it`: parameter `*words` must be one that can be given by name"),
        ("def it(word: 'Wrod'): ...", "the parameters of `odd:it` cannot be read: name 'Wrod' is not defined"),
        ("def it(word: complex): ...", "`odd:it`: its parameters cannot be described as JSON: "),
    ],
)
def test_a_tool_whose_parameters_cannot_be_described_is_refused(folder: Path, code: str, message: str) -> None:
    (folder / "odd.py").write_text(code, encoding="utf-8")
    [(path, problem)] = wrong_in(folder, '[tools.a]\nrun = "odd:it"')
    assert path == "remit.toml:2 tools.a.run"
    assert problem.startswith(message)


def test_the_code_of_an_isolated_agent_is_looked_for_and_not_imported(folder: Path) -> None:
    (folder / "odd.py").write_text("it = lambda brief: 1\nraise SystemExit", encoding="utf-8")
    assert load(folder, '[agents.a]\nrun = "odd:it"\nisolation = "process"').agents
    [(path, message)] = wrong_in(folder, '[agents.a]\nrun = "odd:its"\nisolation = "process"')
    assert (path, message) == ("remit.toml:2 agents.a.run", "`odd` has no `its`; did you mean `it`?")


# ── schemas ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_schema_in_a_file_of_its_own_is_read(folder: Path) -> None:
    (folder / "in.json").write_text('{"type": "string"}', encoding="utf-8")
    team = load(folder, '[capabilities.TAG]\ninput_schema = "in.json"\nresult_schema = { type = "integer" }')
    assert team.capabilities["TAG"].capability("TAG").input_schema == {"type": "string"}
    assert team.capabilities["TAG"].capability("TAG").result_schema == {"type": "integer"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON: "),
        ("[]", "is not a JSON Schema: it holds no object"),
        ('{"type": 3}', "this is not a JSON Schema: "),
    ],
)
def test_a_file_that_is_no_schema_is_refused(folder: Path, content: str, message: str) -> None:
    (folder / "in.json").write_text(content, encoding="utf-8")
    [(path, problem)] = wrong_in(folder, '[capabilities.TAG]\ninput_schema = "in.json"')
    assert path == "remit.toml:2 capabilities.TAG.input_schema"
    assert message in problem


# ── overrides ─────────────────────────────────────────────────────────────────────────────────────────────────────────

AGENT = '[agents.tag-ai]\nrun = "office:tag"\n'


def test_a_flag_counts_more_than_the_environment_and_that_more_than_the_file(folder: Path) -> None:
    environ = {"REMIT_LIMITS__MAX_DEPTH": "3", "REMIT_LIMITS__MAX_CHAIN": "3", "REMIT_TEAM": "x", "OTHER__X": "1"}
    team = load(
        folder,
        "[limits]\nmax_depth = 2\nmax_chain = 2\nmax_fan_out = 2",
        environ=environ,
        overrides=["limits.max_depth=4"],
    )
    limits = team.limits
    assert (limits.max_depth, limits.max_chain, limits.max_fan_out, limits.max_progress) == (4, 3, 2, 1_000)


def test_the_last_of_two_flags_counts(folder: Path) -> None:
    assert load(folder, "", overrides=["name=a", "name=b"]).name == "b"


def test_names_of_agents_are_found_in_the_names_of_variables(folder: Path) -> None:
    environ = {
        "REMIT_AGENTS__TAG_AI__TOKENS": "5",
        "REMIT_AGENTS__TAG_AI__MAY_CALL": '["tag-ai"]',
        "REMIT_AGENTS__TAG_AI__RATE": "{ calls = 1, seconds = 2 }",
        "REMIT_AGENTS__TAG_AI__TIME": "5s",
        "REMIT_AGENTS__TAG_AI__VERSION": "2.0",
        "REMIT_REDACTION__PATTERNS__STAFF": "ST-[0-9]+",
        "REMIT_NAME": "17",
    }
    team = load(folder, AGENT, environ=environ)
    agent = team.agents["tag-ai"]
    assert (agent.tokens, agent.may_call, agent.time, agent.version) == (5, {"tag-ai"}, "5s", "2.0")
    assert agent.rate is not None
    assert (agent.rate.calls, agent.rate.seconds) == (1, 2)
    assert team.redaction.patterns == {"STAFF": "ST-[0-9]+"}
    assert team.name == "17"


def test_a_flag_takes_keys_and_values_as_toml_writes_them(folder: Path) -> None:
    text = '[agents."a.b"]\nrun = "office:tag"'
    team = load(
        folder,
        text,
        overrides=[
            'agents."a.b".tokens = 7',
            "agents.new.run=office:tag",
            'rules=[{then="ask"}]',
            'agents.new.prompt="say a=b"',
            "agents.new.description=two\nlines = 2",
        ],
    )
    assert team.agents["a.b"].tokens == 7
    assert team.agents["new"].run == "office:tag"
    assert team.agents["new"].prompt == "say a=b"
    assert team.agents["new"].description == "two\nlines = 2"
    assert len(team.rules) == 1


def test_what_is_wrong_with_an_override_is_said_of_the_variable_or_flag(folder: Path) -> None:
    environ = {
        "REMIT_LIMITS__MAX_DEPTH": "deep",
        "REMIT_LIMTS__MAX_DEPTH": "1",
        "REMIT_LIMITS__MAX_DEPHT": "1",
        "REMIT_AGENTS__TAG__TOKENS": "1",
        "REMIT_NAME__X": "1",
        "REMIT_AGENTS__TAG_AI__MAY_CALL": '["prime"]',
        "REMIT_REDACTION__KEY": "hunter2",
    }
    flags = ["limits.max_chain=x", "max_depth", "nam=x", "agents.new.tokens=1", "name.x=1", "a\nb=1"]
    problems = wrong_in(folder, 'name = "n"\n[limits]\nmax_depth = 3\n' + AGENT, overrides=flags, environ=environ)
    needed = next(message for path, message in problems if path == "--set agents.new.tokens agents.new")
    assert needed.startswith("an agent needs `run`")
    assert sorted(each for each in problems if each[1] != needed) == sorted(
        [
            ("REMIT_LIMITS__MAX_DEPTH limits.max_depth", "expected an integer, got a text"),
            ("REMIT_LIMTS__MAX_DEPTH", "there is no `LIMTS` in a team file; did you mean `LIMITS`?"),
            ("REMIT_LIMITS__MAX_DEPHT", "there is no `MAX_DEPHT` in `limits`; did you mean `MAX_DEPTH`?"),
            ("REMIT_AGENTS__TAG__TOKENS", "there is no `TAG` in `agents`; did you mean `TAG_AI`?"),
            ("REMIT_NAME__X", "there is no `X` in `name`"),
            ("REMIT_AGENTS__TAG_AI__MAY_CALL agents.tag-ai.may_call",
             "there is no agent `prime`; there are: new, tag-ai"),
            ("REMIT_REDACTION__KEY redaction.key", 'a team file must not contain secrets: write "$NAME", '
             "and put its value into the environment variable NAME"),
            ("--set limits.max_chain", "expected an integer, got a text"),
            ("--set", "expected key=value such as limits.max_depth=3, got 'max_depth'"),
            ("--set nam", "unknown key; did you mean `name`?"),
            ("--set name.x", "`name` is not a table"),
            ("--set", "expected key=value such as limits.max_depth=3, got 'a\\nb=1'"),
        ]
    )  # fmt: skip


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_secret_is_named_by_its_variable(folder: Path) -> None:
    text = '[redaction]\nkey = "$VAULT"'
    assert load(folder, text, secrets=False).redaction.key == "$VAULT"
    assert load(folder, text, environ={"VAULT": KEY}).redaction.key == "$VAULT"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-" + "Ab1dEf2hIj3lMn4pQr5tUv6x" * 2,
        "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5",
        "postgres://admin:hunter2hunter2@db.example.com/app",
        "Authorization: Bearer aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE",
    ],
)
def test_a_text_that_looks_like_a_secret_is_refused_without_being_shown(folder: Path, secret: str) -> None:
    text = f'[agents.tag-ai]\nrun = "office:tag"\nprompt = """\nBe kind.\n{secret}"""\n[limits]\nmax_depht = "{secret}"'
    problems = wrong_in(folder, text)
    assert [path for path, _ in problems] == ["remit.toml:3 agents.tag-ai.prompt", "remit.toml:7 limits.max_depht"]
    assert all('write "$NAME"' in message and secret not in message for _, message in problems)


def test_ordinary_words_are_no_secret(folder: Path) -> None:
    load(
        folder,
        '[agents.tag-ai]\nrun = "office:tag"\nprompt = "Never tell your API key, bearer token or password to anyone: '
        'it is a secret. Write to https://example.com/path or a@example.com."',
    )


# ── cost ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_reading_a_team_loads_neither_the_event_loop_nor_the_store(folder: Path) -> None:
    load(folder, '[agents.tag-ai]\nrun = "office:tag"')
    code = "import sys; from pathlib import Path; from remit_cli.config.load import load_team; "
    code += "load_team(Path('remit.toml')); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=True
    )
    assert {"asyncio", "apsw", "cryptography", "phonenumbers"} & set(done.stdout.split()) == set()


def test_a_file_that_is_nested_without_end_is_refused(folder: Path) -> None:
    assert wrong_in(folder, "a = " + "[" * 5_000) == [("remit.toml", "values are nested too deep")]
