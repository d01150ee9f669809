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
    from remit.ports import Agent, AgentFunction, Companion, Store, Summarizer, TextReader


class CommandSpec(NamedTuple):
    """A command of `remit`: the address of its click command, and its line in `remit --help`."""

    address: str
    help: str


class NamedStore(NamedTuple):
    """A store that commands know by a name: the address of a function that returns its file, and whose store it is."""

    address: str
    of: str


class Hooks(Protocol):
    """What a plugin can bring; it defines the functions that it needs, and no others."""

    def agent(self, value: object) -> "AgentFunction | None":
        """Return the function that answers a brief for a value that is none itself; None: another plugin may know it.

        def agent(value): return answerer(value) if isinstance(value, Bot) else None
        """
        ...

    def companions(self, hub: "Hub") -> "Iterable[Companion]":
        """Return what opens and closes with a hub; it can read the record of the hub, which is not open yet.

        def companions(hub): return [RainGauge(hub.events())]
        """
        ...

    def detectors(self) -> "Sequence[Detector]":
        """Return more detectors of personal data and secrets, beside those that are brought for `redaction`.

        def detectors(): return [lambda text: [Finding(*m.span(), "BADGE") for m in BADGE.finditer(text)]]
        """
        ...

    def guards(self) -> "Iterable[Guard]":
        """Return what judges each delegation and each use of a tool in every hub, after the guards of Remit.

        def guards(): return [no_picnic_in_rain]
        """
        ...

    def isolated_agent(
        self, hub: "Hub", name: str, code: object, options: "AgentOptions", secret: "Sequence[Path]"
    ) -> "tuple[Agent, Callable[[], Awaitable[None]]]":
        """Return an agent with `isolation="process"`, and what ends it; it must not read *secret* files.

        def isolated_agent(hub, name, code, options, secret): return ProcessAgent(code), no_op
        """
        ...

    def model_agent(self, model: str, **settings: Any) -> "Agent":
        """Return an agent backed by the language model of a name; its `check()` raises if it cannot be called.

        def model_agent(model, **settings): return ForecastModel(model, **settings)
        """
        ...

    def redaction(self) -> "Detector":
        """Return what finds personal data and secrets in texts; the first plugin that brings it is asked.

        def redaction(): return detector_pipeline()
        """
        ...

    def remotes(self) -> Mapping[str, str]:
        """Return the addresses of what reaches agents elsewhere, by the scheme of their `address` in the team file.

        It is called with the address of an agent, and returns a `Remote`.

        def remotes(): return {"weather": "remit_weather.stations:Station"}
        """
        ...

    def routed_agent(self, hub: "Hub", card: "AgentCard", agent: "Agent") -> "Agent":
        """Return an agent with the option `route`: one that hands a request to another agent where that is better.

        def routed_agent(hub, card, agent): return PlacedAgent(agent, card)
        """
        ...

    def sections(self) -> Iterable[str]:
        """Return the addresses of sections of the team file, each a `remit_cli.config.team.TeamSection`.

        def sections(): return ["remit_weather.section:WEATHER"]
        """
        ...

    def stores(self) -> "Mapping[str, Callable[..., Store]]":
        """Return what makes a store of an address, by the scheme of the address.

        def stores(): return {"memory": lambda address, **options: MemoryStore()}
        """
        ...

    def upkeep(self) -> Mapping[str, str]:
        """Return the addresses of what removes rows from a store, by the name of its engine.

        It is called with the place of the store, and returns an `Upkeep`.

        def upkeep(): return {"memory": "remit_memory.upkeep:MemoryUpkeep"}
        """
        ...

    def text_reader(self) -> "TextReader":
        """Return what reads the texts of people and agents; the first plugin that brings one is asked.

        def text_reader(): return RuleReader()
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

    def databases(self) -> Mapping[str, str]:
        """Return the addresses of what does the work of commands in a database, by the scheme of its address.

        It is called with the team, and returns a `Database`.

        def databases(): return {"memory": "remit_memory.cli:MemoryDatabase"}
        """
        ...

    def named_stores(self) -> Mapping[str, NamedStore]:
        """Return stores that `--store NAME` means; where there is no team, the first that exists is read.

        def named_stores(): return {"weather": NamedStore("remit_weather.places:store", "weather stations")}
        """
        ...

    def extensions(self) -> Mapping[str, str]:
        """Return the addresses of what extends a command, by its name; `chat` and `store` can be extended.

        It is called with the click command, and returns the one that takes its place.

        def extensions(): return {"chat": "remit_weather.cli:with_weather"}
        """
        ...

    def checks(self) -> Sequence[str]:
        """Return the addresses of checks of `remit doctor`: functions that take a team and yield each `Check`.

        def checks(): return ["remit_weather.cli:check_stations"]
        """
        ...

    def placing(self) -> str:
        """Return the address of what advises `remit policy explain` whether an agent should delegate a request.

        It is called with the team, its cards, the call, the request, and what `--simple` and `--lacks-data` say, and
        returns a `Placing` or None. The first plugin that brings it is asked.

        def placing(): return "remit_weather.cli:placed"
        """
        ...

    def summarizer(self, model: str, *, base_url: str | None, api_key: str | None) -> "Summarizer":
        """Return what summarizes conversations with the language model of a name.

        def summarizer(model, *, base_url, api_key): return ForecastModel(model).summarize
        """
        ...

    def team_hubs(self, team: Any) -> str | None:
        """Return the address of what asks the other hubs of a team for commands; None: there is no way to them.

        It is called with the team, and returns the `TeamHubs`.

        def team_hubs(team): return "remit_mail.cli:MailedHubs" if "postmaster" in team.agents else None
        """
        ...

    def beside_device(self, team: Any) -> str | None:
        """Return the address of what runs beside the device of a team, in `remit up`; None: nothing does.

        It is called with the team and the command, and returns an asynchronous context manager.

        def beside_device(team): return "remit_weather.cli:watching" if "weather" in team.agents else None
        """
        ...

    def dev_chat(self) -> str | None:
        """Return the address of what shows a chat beside the team in `remit dev`; None if it cannot be shown.

        It is called with the order of the command, and returns an asynchronous context manager with all that is shown.

        def dev_chat(): return "remit_weather.cli:showing_forecasts"
        """
        ...

    def drafts(self, folder: Path) -> str | None:
        """Return the address of what has drafts for `remit pending` in the folder of a store; None: nothing there has.

        It is called with the folder, the team file and what overrides it, and returns a `DraftBox`.

        def drafts(folder): return "remit_weather.cli:Forecasts" if (folder / "weather.db").exists() else None
        """
        ...
