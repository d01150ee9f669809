"""A public example is recorded once, and evaluated and replayed without a network; a changed prompt is named."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from checkout import ROOT
from command_line import remit
from openai_server import OpenAIServer, Reply, Request, calls, say
from remit_cli.config.load import load_team
from remit_cli.drive.replaying import replay

TRANSLATIONS = {"Spanish": "Buenos días", "French": "Bonjour"}


def model(request: Request) -> Reply:
    """Answer as each of the agents does in the example."""
    prompt = request.messages[0]["content"]
    for language, translation in TRANSLATIONS.items():
        if prompt.endswith(f"to {language}"):
            return say(translation)
    if prompt.startswith("You inspect"):
        return say(" / ".join(each for each in TRANSLATIONS.values() if each in request.message_texts))
    if request.results:
        return say("; ".join(TRANSLATIONS.values()))
    wanted = [(name.lower(), f"Translate 'Good morning' to {name}") for name in TRANSLATIONS]
    return calls(*(("sub_agent", {"agent_name": agent, "task": task}) for agent, task in wanted))


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, recorded with a model that is gone now."""
    folder = tmp_path_factory.mktemp("translation")
    shutil.copytree(ROOT / "examples" / "translation", folder, dirs_exist_ok=True)
    with OpenAIServer(model) as server:
        known = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "a key"}
        done = remit("eval", "cases.toml", "--record", folder=folder, **known)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_example_is_evaluated_without_a_network(example: Path) -> None:
    done = remit("eval", "cases.toml", folder=example)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 run passed" in done.stdout


def test_the_example_is_replayed_in_a_moment(example: Path) -> None:
    team = load_team(example / "remit.toml", secrets=False, serving=False)
    recording = example / "recordings" / "spanish-and-french.jsonl"
    asyncio.run(replay(team, recording, "refuse"))  # the libraries of models are imported
    began, cpu = time.perf_counter(), time.process_time()
    report = asyncio.run(replay(team, recording, "refuse"))
    took, used = time.perf_counter() - began, time.process_time() - cpu
    print(f"replayed in {took:.2f} s, {used:.2f} s of CPU")  # shown with `pytest -s`
    assert (report.same, report.replies) == (True, 5), report.differences
    assert report.runs[0].result == "Buenos días / Bonjour"


def test_a_changed_prompt_is_pointed_at_by_the_name_of_its_agent(example: Path) -> None:
    changed = ("--set", "agents.french.prompt=You translate the user's message to Breton")
    done = remit("runs", "replay", "recordings/spanish-and-french.jsonl", *changed, folder=example)
    assert done.returncode == 1
    first = " ".join(done.stdout.split())
    assert "french's 1st call of its model (call 1.2): `messages[0].content`: '…" in first
    assert "to French' became '…" in first
    assert "to Breton'" in first
