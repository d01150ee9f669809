"""`remit agents`: who is in the team, and what each may do."""

from pathlib import Path

from command_line import document, make_team, remit


def test_the_agents_are_listed_with_whom_they_may_call(tmp_path: Path) -> None:
    make_team(tmp_path, "receipts")
    done = remit("agents", "list", folder=tmp_path)
    assert done.returncode == 0
    heading, *lines = done.stdout.splitlines()
    assert heading.split() == ["AGENT", "DESCRIPTION", "CAPABILITIES", "MAY", "CALL", "TOOLS"]
    assert [line.split()[0] for line in lines] == ["orchestrator", "bookkeeper", "tax"]
    assert "bookkeeper, tax" in lines[0]


def test_an_agent_is_shown_with_who_may_call_it_and_its_limits(tmp_path: Path) -> None:
    make_team(tmp_path, "receipts")
    shown = remit("agents", "show", "tax", folder=tmp_path).stdout
    fields = {line[:14].strip(): line[14:] for line in shown.splitlines()}
    assert fields["called by"] == "user, orchestrator"
    assert fields["time"] == "5 s for one request"
    assert fields["code"] == "agents:tax"
    assert fields["may call"] == "nobody"


def test_programs_get_the_card(tmp_path: Path) -> None:
    make_team(tmp_path, more='\n[agents.boss]\nrun = "agents:counter"\nmay_call = ["*"]\nsees = ["EMAIL"]\n')
    found = document("agents", "show", "boss", folder=tmp_path)
    assert (found["card"]["name"], found["card"]["sees"]) == ("boss", ["EMAIL"])
    # Its description is what its code says of itself.
    assert found["card"]["description"] == "Count letters, words and sentences."
    assert document("agents", "show", "reader", folder=tmp_path)["called_by"] == ["user", "orchestrator", "boss"]
    assert [each["name"] for each in document("agents", "list", folder=tmp_path)["agents"]][-1] == "boss"


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
