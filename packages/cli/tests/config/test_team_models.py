"""Agents of a team file that are models: said, checked, wired, and shown."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from textwrap import dedent
from typing import Any

import pytest

from checkout import TESTS
from command_line import remit
from commands import popen
from onnx_files import write_entailment_model
from openai_server import OpenAIServer, call, say
from remit import RemitError
from remit.installed import install_command
from remit_cli.config.composition import hub_of, reload
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_cli.places import cards_of
from remit_orchestrator import conflict_reader as entailment
from remit_orchestrator.readers import embeddings

ENTAILMENT = ("numpy", "onnxruntime", "tokenizers")

CLERK = """\
    [store]
    path = "hub.db"
    durability = "process"

    [agents.clerk]
    model = "scripted"
    base_url = "{url}"
    prompt = "Be short."
    """


def load(folder: Path, text: str, *, environ: Mapping[str, str] = {}, **options: Any) -> Team:
    file = folder / "remit.toml"
    file.write_text(dedent(text), encoding="utf-8")
    return load_team(file, environ=environ, **options)


def wrong_in(folder: Path, text: str, **options: Any) -> list[tuple[str, str]]:
    with pytest.raises(RemitError) as raised:
        load(folder, text, **options)
    return [(problem.path, problem.message) for problem in raised.value.fault.problems]


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer([say("Good day.")]) as server:
        yield server


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_model_of_a_team_file_answers_as_it_is_told_to(folder: Path, server: OpenAIServer) -> None:
    text = CLERK.format(url=server.base_url) + (
        'api_key = "$CLERK_KEY"\n    max_output_tokens = 77\n    tools = ["count"]\n    max_tool_rounds = 2\n'
        '    settings = { temperature = 0.5 }\n\n    [tools.count]\n    run = "office:count"\n'
    )
    environ = {"CLERK_KEY": "k-9"}
    async with hub_of(load(folder, text, environ=environ), environ=environ) as hub:
        response = await hub.ask("clerk", "Hello", user="u-1")
    [request] = server.requests
    assert response.result == "Good day."
    assert request.headers["authorization"] == "Bearer k-9"
    assert (request.body["max_tokens"], request.body["temperature"]) == (77, 0.5)
    assert request.messages[0] == {"role": "system", "content": "Be short."}
    assert request.tools == ["count"]


async def test_a_model_of_a_team_file_asks_an_agent_that_is_code(folder: Path) -> None:
    """O1: the tool is there for every agent that may call another."""
    replies = [call("sub_agent", agent_name="tag-ai", task="Tag", input="receipts"), say("Three.")]
    with OpenAIServer(replies) as server:
        text = CLERK.format(url=server.base_url) + '    may_call = ["tag-ai"]\n[agents.tag-ai]\nrun = "office:tag"'
        async with hub_of(load(folder, text)) as hub:
            assert (await hub.ask("clerk", "How many?", user="u-1")).result == "Three."
    assert "3 categories for receipts" in server.requests[1].results[0]
    assert "- tag-ai: Tag receipts." in server.requests[0].text


def test_the_command_line_runs_a_model(tmp_path: Path, server: OpenAIServer) -> None:
    (tmp_path / "remit.toml").write_text(dedent(CLERK.format(url=server.base_url)), encoding="utf-8")
    done = remit("run", "clerk", "Hello", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Good day.\n"), done.stderr


def test_the_server_of_these_tests_is_a_program_too(tmp_path: Path) -> None:
    """For the pages, and for whoever wants to try a team of models without one."""
    script = [{"call": {"count": {"text": "abc"}}}, {"say": "Three."}]
    program = TESTS / "openai_server.py"
    request_log = tmp_path / "requests.jsonl"
    arguments = ["--script", json.dumps(script), "--requests", str(request_log)]
    with popen([sys.executable, str(program), *arguments], stdout=PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            team = CLERK.format(url=started.stdout.readline().strip())
            (tmp_path / "office.py").write_text(
                "def count(text: str) -> int:\n    return len(text)\n", encoding="utf-8"
            )
            team += '    tools = ["count"]\n\n    [tools.count]\n    run = "office:count"\n'
            (tmp_path / "remit.toml").write_text(dedent(team), encoding="utf-8")
            done = remit("run", "clerk", "How long is abc?", folder=tmp_path)
        finally:
            started.terminate()
    assert (done.returncode, done.stdout) == (0, "Three.\n"), done.stderr
    assert json.loads(request_log.read_text().splitlines()[1])["messages"][-1]["content"] == "3"


async def test_code_may_be_an_agent_that_is_an_object(folder: Path, server: OpenAIServer) -> None:
    code = f'from remit_models import ModelAgent\nclerk = ModelAgent("scripted", base_url="{server.base_url}")\n'
    (folder / "models.py").write_text(code, encoding="utf-8")
    text = '[store]\npath = "hub.db"\n[agents.clerk]\nrun = "models:clerk"'
    async with hub_of(load(folder, text)) as hub:
        assert (await hub.ask("clerk", "Hello", user="u-1")).result == "Good day."


# ── checking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_wrong_with_one_agent_hides_nothing_of_another(folder: Path) -> None:
    text = '[agents.a]\nmodel = "gpt-5"\n[agents.b]\nrun = "office"\n[agents.c]\n'
    assert [path for path, _ in wrong_in(folder, text)] == [
        "remit.toml:2 agents.a.model",
        "remit.toml:4 agents.b.run",
        "remit.toml:5 agents.c",
    ]


def test_commands_that_run_nothing_need_neither_key_nor_model(folder: Path) -> None:
    text = '[agents.a]\nmodel = "openai:gpt-5-mini"\napi_key = "$NO"\n[context]\nsummary_model = "x:y"\n'
    assert list(cards_of(load(folder, text, secrets=False))) == ["a"]
    code = "import sys; from remit_cli.config.load import load_team; "
    code += "load_team('remit.toml', secrets=False); print('pydantic_ai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_its_key_no_hub_is_made(folder: Path) -> None:
    team = load(folder, '[agents.a]\nmodel = "openai:gpt-5-mini"\napi_key = "$NO"', secrets=False)
    with pytest.raises(RemitError, match="the environment variable NO is not set"):
        hub_of(team, environ={})


def test_a_changed_model_waits_for_a_restart(folder: Path) -> None:
    old = load(folder, '[agents.a]\nmodel = "x:y"\nsettings = { seed = 1 }', secrets=False)
    new = load(folder, '[agents.a]\nmodel = "x:z"\nsettings = { seed = 2 }\ntokens = 5', secrets=False)
    done = reload(hub_of(old, environ={}), old, new)
    assert done.applied == ("agents.a.tokens",)
    assert done.needs_restart == ("agents.a.model", "agents.a.settings")


# ── shown ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_is_shown_in_place_of_code(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text('[agents.clerk]\nmodel = "openai:gpt-5-mini"\napi_key = "$NO"\n')
    shown = remit("agents", "show", "clerk", folder=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "openai:gpt-5-mini" in shown.stdout
    details = json.loads(remit("agents", "show", "clerk", "--json", folder=tmp_path).stdout)
    assert (details["run"], details["model"]) == (None, "openai:gpt-5-mini")
    assert remit("policy", "explain", "user", "clerk", "Hello", folder=tmp_path).returncode == 0


def test_what_a_model_lacks_is_said_by_validate_and_doctor(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text('[agents.clerk]\nmodel = "anthropic:claude-x"\napi_key = "$NO"\n')
    for command in ("validate", "doctor"):
        done = remit(command, folder=tmp_path)
        assert done.returncode != 0
        assert "the environment variable NO is not set" in done.stdout
        done = remit(command, folder=tmp_path, NO="k")
        assert "pip install 'pydantic-ai-slim[anthropic]'" in done.stdout
    assert remit("run", "clerk", "Hello", folder=tmp_path).returncode == 3


# ── the context ───────────────────────────────────────────────────────────────────────────────────────────────────────

SHOWN = """
from remit import ContextFilter


async def prime(brief):
    wanted = ContextFilter(include_summary=True, include_workspace=True)
    return (await brief.delegate("tag-ai", objective="Tag", context=wanted)).result


async def tag(brief):
    return {"summary": brief.view.summary, "workspace": brief.view.workspace, "tokens": brief.view.tokens}
"""


async def test_a_summary_is_made_by_the_model_that_is_named_for_it(folder: Path) -> None:
    (folder / "shown.py").write_text(SHOWN, encoding="utf-8")
    with OpenAIServer([say("Tea is wanted.")]) as server:
        text = f"""
            [store]
            path = "hub.db"

            [context]
            tokenizer = "estimate"
            workspace = "."
            summary_model = "scripted"
            summary_base_url = "{server.base_url}"

            [agents.prime]
            run = "shown:prime"
            may_call = ["tag-ai"]

            [agents.tag-ai]
            run = "shown:tag"
            """
        async with hub_of(load(folder, text)) as hub:
            first = await hub.ask("prime", "I want tea, please.", user="u-1")
            shown = (await hub.ask("prime", "And now?", user="u-1", session=first.session)).unwrap()
    assert shown["summary"] == "Tea is wanted."
    assert "shown.py" in shown["workspace"]
    assert "I want tea, please." in server.requests[-1].message_texts


# ── the orchestrator ──────────────────────────────────────────────────────────────────────────────────────────────────

ORCHESTRATED = """\
    [store]
    path = "hub.db"
    durability = "process"

    [orchestrator]
    reader = "model"
    narrate = "model"
    model = "scripted"
    base_url = "{url}"
    api_key = "$MODEL_KEY"
    settings = {{ temperature = 0.0 }}
    cache = "1m"

    [agents.SKY]
    run = "sky:sky"
    capabilities = ["WEATHER", "PIZZA"]

    [capabilities.WEATHER]
    description = "Say what the weather will be like"
    read_only = true

    [capabilities.PIZZA]
    description = "Tell what there is to eat"
    read_only = true

    [workflows.both]
    description = "Do both"
    narrate = "model"

    [[workflows.both.steps]]
    name = "one"
    capability = "WEATHER"

    [[workflows.both.steps]]
    name = "two"
    capability = "PIZZA"
    """


def wanted(*codes: str) -> Any:
    commands = [
        {"command": "start", "piece": piece, "words": words, "capability": code, "confidence": 0.9}
        for piece, (code, words) in enumerate(zip(codes, ("umbrella", "cheese"), strict=True), 1)
    ]
    return call("final_result", commands=commands)


async def test_the_model_of_an_orchestrator_says_what_is_wanted_and_tells_what_came_of_it(folder: Path) -> None:
    """K7, K9."""
    (folder / "sky.py").write_text("async def sky(brief):\n    return f'{brief.capability.lower()} at 9:40'\n")
    environ = {"MODEL_KEY": "k-9"}
    with OpenAIServer([wanted("WEATHER", "PIZZA"), say("Weather at 9:40\nPizza at 9:40")]) as server:
        team = load(folder, ORCHESTRATED.format(url=server.base_url), environ=environ)
        async with hub_of(team, environ=environ) as hub:
            first = await hub.ask("orchestrator", "umbrella? cheese?", user="u")
            again = await hub.ask("orchestrator", "umbrella? cheese?", user="u")
            flow = await hub.ask("both", "both", user="u")
    assert first.result.startswith("Weather at 9:40\nPizza at 9:40")
    assert [each.metadata["narrated"] for each in (first, again, flow)] == ["model"] * 3
    assert [each.metadata["cache_status"] for each in (first, again)] == ["miss", "hit"]
    assert len(server.requests) == 4
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer k-9"}
    assert {request.body["temperature"] for request in server.requests} == {0.0}


async def test_the_second_reader_of_conflicts_reads_the_results_of_workflows(folder: Path) -> None:
    """K9: a model of its own, beside the rules."""
    (folder / "two.py").write_text("async def one(brief):\n    return 'It is paid.'\n")
    text = """\
    [store]
    path = "hub.db"
    durability = "process"

    [orchestrator]
    conflicts = {{ model = "scripted", base_url = "{url}", api_key = "$MODEL_KEY" }}

    [agents.a]
    run = "two:one"

    [agents.b]
    run = "two:one"

    [workflows.check]
    compare = ["one", "two"]
    steps = [{{ name = "one", agent = "a" }}, {{ name = "two", agent = "b" }}]
    """
    environ = {"MODEL_KEY": "k-9"}
    with OpenAIServer([call("final_result", contradictions=[])]) as server:
        team = load(folder, text.format(url=server.base_url), environ=environ)
        async with hub_of(team, environ=environ) as hub:
            response = await hub.ask("check", "Is it paid?", user="u")
    assert (response.metadata["second_reader"], response.metadata["pointed_out"]) == ("model", 0)
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer k-9"]


@pytest.mark.skipif(not all(map(find_spec, ENTAILMENT)), reason="needs the extra intent")
async def test_an_entailment_model_is_found_beside_the_team_file(folder: Path) -> None:
    """K9: a second reader that the user brings; its path is relative to the file."""
    write_entailment_model(folder / "reader")
    (folder / "two.py").write_text(
        "async def one(brief):\n    return 'The invoice has been paid.'\n\n\n"
        "async def other(brief):\n    return 'The invoice is still open.'\n"
    )
    text = """\
    [store]
    path = "hub.db"
    durability = "process"

    [orchestrator]
    conflicts = { onnx = "reader/model.onnx", threshold = 0.95 }

    [agents.a]
    run = "two:one"

    [agents.b]
    run = "two:other"

    [workflows.check]
    compare = ["one", "two"]
    steps = [{ name = "one", agent = "a" }, { name = "two", agent = "b" }]
    """
    async with hub_of(load(folder, text), environ={}) as hub:
        response = await hub.ask("check", "Is it paid?", user="u")
    assert (response.metadata["second_reader"], response.metadata["pointed_out"]) == ("entailment", 1)


@pytest.mark.skipif(not all(map(find_spec, ENTAILMENT)), reason="needs the extra intent")
def test_an_entailment_model_that_cannot_be_used_is_named_in_its_line(folder: Path) -> None:
    text = '[orchestrator]\nconflicts = { onnx = "reader/model.onnx" }'
    [(path, message)] = wrong_in(folder, text)
    assert path == "remit.toml:2 orchestrator.conflicts.onnx"
    assert f"{folder / 'reader' / 'model.onnx'} does not exist" in message
    file = write_entailment_model(folder / "reader")
    assert load(folder, text).orchestrator is not None
    file.write_bytes(b"no model")
    [(path, message)] = wrong_in(folder, text)
    assert (path, "not an ONNX model" in message) == ("remit.toml:2 orchestrator.conflicts.onnx", True)


def test_without_its_packages_an_entailment_model_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(package: str) -> None:
        assert package

    monkeypatch.setattr(entailment, "find_spec", nothing)
    [(path, message)] = wrong_in(folder, '[orchestrator]\nconflicts = { onnx = "m.onnx" }')
    assert path == "remit.toml:2 orchestrator.conflicts.onnx"
    assert install_command("intent") in message


def test_without_the_key_of_its_model_no_hub_with_an_orchestrator_is_made(folder: Path) -> None:
    text = '[orchestrator]\nreader = "model"\nmodel = "openai:gpt-5-mini"\napi_key = "$NO"'
    with pytest.raises(RemitError, match="the environment variable NO is not set"):
        hub_of(load(folder, text, secrets=False), environ={})


def test_what_a_reader_needs_is_looked_for_before_anything_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(package: str) -> None:
        assert package

    text = '[orchestrator]\nreader = "embeddings"'
    monkeypatch.setattr(embeddings, "find_spec", nothing)
    [(path, message)] = wrong_in(folder, text)
    assert path == "remit.toml:2 orchestrator.reader"
    assert install_command("intent") in message
    assert load(folder, text, secrets=False).orchestrator is not None
