"""`remit agents`: who is in the team, and what each may do."""

from pathlib import Path

from command_line import document, make_team, remit


def test_the_agents_are_listed_with_whom_they_may_call(tmp_path: Path) -> None:
    make_team(tmp_path, "receipts")
    done = remit("agents", "list", folder=tmp_path)
    assert done.returncode == 0
    heading, *lines = done.stdout.splitlines()
    assert heading.split() == ["AGENT", "DESCRIPTION", "CAPABILITIES", "MAY", "CALL", "TOOLS"]
    assert [line.split()[0] for line in lines] == ["assistant", "bookkeeper", "tax"]
    assert "bookkeeper, tax" in lines[0]


def test_an_agent_is_shown_with_who_may_call_it_and_its_limits(tmp_path: Path) -> None:
    make_team(tmp_path, "receipts")
    shown = remit("agents", "show", "tax", folder=tmp_path).stdout
    fields = {line[:14].strip(): line[14:] for line in shown.splitlines()}
    assert fields["called by"] == "user, assistant"
    assert fields["time"] == "5 s per request"
    assert fields["code"] == "agents:tax"
    assert fields["may call"] == "nobody"


def test_programs_get_the_card(tmp_path: Path) -> None:
    make_team(tmp_path, more='\n[agents.boss]\nrun = "agents:counter"\nmay_call = ["*"]\nsees = ["EMAIL"]\n')
    output = document("agents", "show", "boss", folder=tmp_path)
    assert (output["card"]["name"], output["card"]["sees"]) == ("boss", ["EMAIL"])
    # Its description is what its code says of itself.
    assert output["card"]["description"] == "Count letters, words and sentences."
    assert document("agents", "show", "reader", folder=tmp_path)["called_by"] == ["user", "assistant", "boss"]
    assert [each["name"] for each in document("agents", "list", folder=tmp_path)["agents"]][-1] == "boss"


ELSEWHERE = """
[peers.tax-office]
url = "https://tax.example:8443"
token = "$TAX_TOKEN"
[agents.tax-ai]
peer = "tax-office"
remote = "tax"
[agents.trains]
card = "https://travel.example/a2a/trains"
[relay]
gateway = "wss://relay.example"
[agents.bobs-expert]
device = "bob-desktop"
remote = "api-expert"
"""


def test_of_an_agent_that_lives_elsewhere_it_is_said_where_and_not_what_only_its_own_hub_knows(tmp_path: Path) -> None:
    make_team(tmp_path, more=ELSEWHERE)
    shown = remit("agents", "show", "tax-ai", folder=tmp_path).stdout
    fields = {name: text.strip() for name, text in (line.split("  ", 1) for line in shown.splitlines())}
    assert (fields["location"], fields["name there"]) == ("tax-office, https://tax.example:8443", "tax")
    assert fields["after a restart"] == "resumed"
    assert not {"tools", "may call", "runs in"} & fields.keys()
    output = document("agents", "show", "trains", folder=tmp_path)
    assert (output["peer"], output["address"]) == (None, "https://travel.example/a2a/trains")
    shown = remit("agents", "show", "bobs-expert", folder=tmp_path).stdout
    fields = {line[:17].strip(): line[17:] for line in shown.splitlines()}
    assert (fields["shared by"], fields["name there"]) == ("bob-desktop", "api-expert")
    assert not {"tools", "may call", "runs in", "location"} & fields.keys()
    assert document("agents", "show", "bobs-expert", folder=tmp_path)["device"] == "bob-desktop"
    heading, *_, tax, trains, expert = remit("agents", "list", folder=tmp_path).stdout.splitlines()
    assert heading.endswith("LOCATION")
    assert (tax.split()[-1], trains.split()[-1]) == ("tax-office", "https://travel.example/a2a/trains")
    assert expert.split()[-1] == "bob-desktop"


def test_a_mistyped_agent_is_guessed(tmp_path: Path) -> None:
    make_team(tmp_path)
    done = remit("agents", "show", "raeder", folder=tmp_path)
    assert done.returncode == 2
    assert "did you mean `reader`?" in done.stderr
    assert "→" in done.stderr


def test_a_secret_that_is_not_set_does_not_keep_one_from_looking(tmp_path: Path) -> None:
    make_team(tmp_path, more='\n[redaction]\nkey = "$OFFICE_KEY"\n')
    assert remit("agents", "list", folder=tmp_path).returncode == 0


def test_a_description_cannot_steer_the_terminal(tmp_path: Path) -> None:
    make_team(
        tmp_path, more='\n[agents.evil]\nrun = "agents:counter"\ndescription = "\\u001b]0;owned\\u0007\\u202Eoops"\n'
    )
    for command in (["list"], ["show", "evil"], ["list", "--json"]):
        printed = remit("agents", *command, folder=tmp_path).stdout
        assert not any(letter in printed for letter in "\x1b\x07\u202e"), command


RIVALS = """
[agents.shaky]
run = "rivals:shaky"
capabilities = ["LOOK"]

[agents.sound]
run = "rivals:sound"
capabilities = ["LOOK"]

[agents.asker]
run = "rivals:asker"
may_call = ["*"]

[capabilities.LOOK]
read_only = true
cache = "1m"
cache_similar = true
hedge = "90s"
"""

CODE = """
async def shaky(brief):
    raise ZeroDivisionError

async def sound(brief):
    brief.spend(prompt=120)
    return "seen"

async def asker(brief):
    for place, name in enumerate(("shaky", "sound", "shaky", "sound", "shaky")):
        await brief.delegate(name, capability="LOOK", input=f"{place} {brief.input}")
    return "asked"
"""


def make_rivals(folder: Path) -> None:
    make_team(folder, more=RIVALS)
    (folder / "rivals.py").write_text(CODE, encoding="utf-8")


def test_who_is_asked_first_is_shown_from_the_record_of_another_process(tmp_path: Path) -> None:
    """C12: the ranking can be seen, with its reasons."""
    make_rivals(tmp_path)
    before = document("agents", "show", "--capability", "LOOK", folder=tmp_path)
    assert remit("run", "asker", "look", folder=tmp_path).returncode == 0
    output = document("agents", "show", "--capability", "LOOK", folder=tmp_path)
    assert [(each["agent"], each["last_seen_ms"]) for each in before["agents"]] == [("shaky", None), ("sound", None)]
    assert (output["schema"], output["capability"]) == ("remit.ranking/1", "LOOK")
    assert output["store"] == ".remit/hub.db"
    sound, shaky = output["agents"]
    assert (sound["agent"], sound["tokens"], sound["in_flight"]) == ("sound", 120, 0)
    assert (shaky["agent"], shaky["tokens"]) == ("shaky", 0)
    assert shaky["quality"] < 0.5 < sound["quality"]
    assert before["at_ms"] <= sound["last_seen_ms"] <= shaky["last_seen_ms"] <= output["at_ms"]
    assert "success" in sound["why"]


def test_people_read_the_ranking_as_a_table(tmp_path: Path) -> None:
    make_rivals(tmp_path)
    empty = remit("agents", "show", "--capability", "LOOK", folder=tmp_path).stdout
    assert "never" in empty
    assert not (tmp_path / ".remit").exists()
    remit("run", "asker", "look", folder=tmp_path)
    heading, first, second = remit("agents", "show", "--capability", "LOOK", folder=tmp_path).stdout.splitlines()
    assert heading.split()[:6] == ["AGENT", "SUCCESS", "TIME", "TOKENS", "IN", "PROGRESS"]
    assert [first.split()[0], second.split()[0]] == ["sound", "shaky"]
    assert " ago " in first


def test_a_capability_that_only_one_agent_has_leaves_no_choice(tmp_path: Path) -> None:
    make_team(tmp_path, more=RIVALS.replace('capabilities = ["LOOK"]', "", 1))
    (tmp_path / "rivals.py").write_text(CODE, encoding="utf-8")
    done = remit("agents", "show", "--capability", "LOOK", folder=tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    assert "Only this agent offers LOOK" in done.stderr


def test_a_capability_that_nobody_has_is_guessed(tmp_path: Path) -> None:
    make_rivals(tmp_path)
    done = remit("agents", "show", "--capability", "LOK", folder=tmp_path)
    assert done.returncode == 2
    assert "did you mean `LOOK`?" in done.stderr


def test_one_agent_or_one_capability_is_shown_at_a_time(tmp_path: Path) -> None:
    make_rivals(tmp_path)
    for named in ([], ["sound", "--capability", "LOOK"]):
        done = remit("agents", "show", *named, folder=tmp_path)
        assert done.returncode == 2
        assert "give an AGENT, or a capability with --capability" in done.stderr


def test_an_agent_says_for_how_long_its_answers_are_kept_and_when_another_is_asked_too(tmp_path: Path) -> None:
    make_rivals(tmp_path)
    shown = remit("agents", "show", "sound", folder=tmp_path).stdout
    assert "LOOK (cached 60 s for identical or similar requests, hedged with a second agent after 90 s)" in shown
