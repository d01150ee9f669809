"""Every point at which a plugin extends Remit.

A plugin is a module that an entry point in the group `remit.plugins` names:

    [project.entry-points."remit.plugins"]
    weather = "remit_weather.plugin"

It brings what it has for a hook as a function with the name of the hook; the methods of `Hooks` are all of them. The
module is imported by every process that asks for any hook, so it imports little, and names further code by its
address, `"module:name"`: that is imported when it is needed. Of the core a plugin uses `remit`, `remit.plugin` and
`remit.ports`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from remit import AgentCard, AgentOptions, Detector, Guard, Hub
    from remit.ports import Agent, AgentFunction, Companion, LanguageModel, StoreEngine, TextReader


class CommandSpec(NamedTuple):
    """A command of `remit`: the address of its click command, and its line in `remit --help`."""

    address: str
    help: str


class NamedStore(NamedTuple):
    """A store that commands know by a name: the address of a function that returns its file, and whose store it is."""

    address: str
    of: str


class Hooks(Protocol):
    """What a plugin can bring; it defines the functions that it needs, and no others.

    Where one answer is enough, the first plugin that brings it is asked, in the order of the plugins' names.
    """

    # ── agents ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def agent(self, value: object) -> "AgentFunction | None":
        """Return the function that answers a brief for a value that is none itself; None: another plugin may know it.

        def agent(value): return answerer(value) if isinstance(value, Bot) else None
        """
        ...

    def model_agent(self, model: str, **settings: Any) -> "LanguageModel":
        """Return an agent backed by the language model of a name.

        def model_agent(model, **settings): return ForecastModel(model, **settings)
        """
        ...

    def isolated_agent(
        self, hub: "Hub", name: str, code: object, options: "AgentOptions", secret: Sequence[Path]
    ) -> "tuple[Agent, Callable[[], Awaitable[None]]]":
        """Return an agent with `isolation="process"`, and what ends it; it must not read *secret* files.

        def isolated_agent(hub, name, code, options, secret): return ProcessAgent(code), no_op
        """
        ...

    def routed_agent(self, hub: "Hub", card: "AgentCard", agent: "Agent") -> "Agent":
        """Return an agent with the option `route`: one that hands a request to another agent where that is better.

        def routed_agent(hub, card, agent): return PlacedAgent(agent, card)
        """
        ...

    def remotes(self) -> Mapping[str, str]:
        """Return the address of what makes a `Remote` of the `address` of an agent in the team file, by its scheme.

        def remotes(): return {"weather": "remit_weather.stations:Station"}
        """
        ...

    # ── every hub ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def guards(self) -> "Iterable[Guard]":
        """Return what judges each delegation and each use of a tool in every hub, after the guards of Remit.

        def guards(): return [no_picnic_in_rain]
        """
        ...

    def redaction(self) -> "Detector":
        """Return what finds personal data and secrets in texts.

        def redaction(): return detector_pipeline()
        """
        ...

    def detectors(self) -> "Sequence[Detector]":
        """Return more detectors of personal data and secrets, beside those that are brought for `redaction`.

        def detectors(): return [lambda text: [Finding(*m.span(), "BADGE") for m in BADGE.finditer(text)]]
        """
        ...

    def text_reader(self) -> "TextReader":
        """Return what reads the texts of people and agents.

        def text_reader(): return RuleReader()
        """
        ...

    def companions(self, hub: "Hub") -> "Iterable[Companion]":
        """Return what opens and closes with a hub; it can read the record of the hub, which is not open yet.

        def companions(hub): return [RainGauge(hub.events())]
        """
        ...

    def stores(self) -> "Mapping[str, StoreEngine]":
        """Return the kinds of databases that stores can be in, by the scheme of their address.

        def stores(): return {"memory": StoreEngine("remit_memory:MemoryStore")}
        """
        ...

    # ── the team file, the HTTP API and the command ───────────────────────────────────────────────────────────────────

    def sections(self) -> Iterable[str]:
        """Return the addresses of sections of the team file, each a `remit_cli.TeamSection`.

        def sections(): return ["remit_weather.section:WEATHER"]
        """
        ...

    def endpoints(self) -> Sequence[str]:
        """Return the addresses of what makes endpoints: functions that take a served hub and yield each `Operation`.

        def endpoints(): return ["remit_weather.api:operations"]
        """
        ...

    def commands(self) -> Mapping[str, Mapping[str, CommandSpec]]:
        """Return commands of `remit` by their group in `remit --help` and their name.

        def commands(): return {"Look": {"weather": CommandSpec("remit_weather.cli:weather", "Show the weather.")}}
        """
        ...

    def extensions(self) -> Mapping[str, str]:
        """Return the address of what extends a command of `remit`, by the name of the command.

        `chat` and `store`: it takes the click command, and returns the one that takes its place. `dev`: it takes the
        order, and returns an asynchronous context manager of all that is shown. `pending`: it takes a folder, the team
        file and its overrides, and returns the `DraftBox` there. `policy explain`: it takes the team, its cards, the
        call, the request, `simple` and `lacks_data`, and returns a `Placing`. The last three may return None.

        def extensions(): return {"chat": "remit_weather.cli:with_weather"}
        """
        ...

    def checks(self) -> Sequence[str]:
        """Return the addresses of checks of `remit doctor`: functions that take a team and yield each `Check`.

        def checks(): return ["remit_weather.cli:check_stations"]
        """
        ...

    def named_stores(self) -> Mapping[str, NamedStore]:
        """Return stores that `--store NAME` means; where there is no team, the first that exists is read.

        def named_stores(): return {"weather": NamedStore("remit_weather.places:store", "weather stations")}
        """
        ...
