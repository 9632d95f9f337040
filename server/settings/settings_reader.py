"""The settings: one file, overridden by the environment and by flags of the same names (`port`, `OSTIARY_PORT`, `--port`).

Every setting is a flat key; `[[server]]` tables describe what is served. Reading reports all problems at once. The addresses,
secrets and certificates that settings come to on this machine are in `resolved_settings.py`.
"""

from __future__ import annotations

import importlib
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec import Meta

from server.lib import paths
from server.settings.acme_settings import AcmeConfig
from server.settings.limit_settings import LimitsConfig
from server.settings.money_faults import money_faults
from server.settings.money_settings import PaymentsConfig, PlanConfig
from server.settings.old_name_faults import faults as old_name_faults
from server.settings.policy_settings import Fault, ScopeConfig, faults, vocabulary
from server.settings.provider_settings import UpstreamConfig
from server.settings.provider_settings import faults as upstream_faults
from server.settings.setting_shapes import Config, ServerConfig
from server.settings.telemetry_settings import TelemetryConfig

T = TypeVar("T")
ENVIRONMENT_PREFIX: Final = "OSTIARY_"
FILE_NAME: Final = "ostiary.toml"
NOT_SETTINGS: Final = frozenset({"OSTIARY_CONFIG", "OSTIARY_CONFIG_HOME", "OSTIARY_DEBUG", "OSTIARY_PROGRAM"})
_TWICE: Final = "Cannot declare ("  # how tomllib begins to say it
CONFIG_BYTES: Final = 1024 * 1024  # a configuration written by people; more is a wrong file

# kind of agent → where its settings struct lives; imported only when a file uses the kind
AGENT_KINDS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "demo": ("server.agents.base.demo_agent", "DemoConfig"),
        "chat": ("server.agents.chat.chat_agent", "ChatConfig"),
        "openai": ("server.agents.chat.openai_agent", "OpenAIConfig"),
        "python": ("server.agents.python.python_settings", "PythonConfig"),
        "mcp": ("server.agents.mcp.mcp_settings", "McpConfig"),
        "command": ("server.agents.command.command_agent", "CommandConfig"),
        "agent": ("server.agents.command.program_agent", "AgentConfig"),
        "mock": ("server.agents.mock.mock_agent", "MockConfig"),
        "openapi": ("server.agents.openapi.openapi_settings", "OpenApiConfig"),
        "skills": ("server.agents.skills.skills_agent", "SkillsConfig"),
    }
)

# The tables beside `[[server]]`, and what each is read as.
_TABLES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "scope": Annotated[
            tuple[ScopeConfig, ...], Meta(max_length=100, description="[[scope]] tables, at most 100")
        ],
        "upstream": Annotated[
            tuple[UpstreamConfig, ...], Meta(max_length=16, description="[[upstream]] tables, at most 16")
        ],
        "payments": Annotated[PaymentsConfig, Meta(description="a table, [payments]")],
        "plan": Annotated[
            tuple[PlanConfig, ...], Meta(max_length=100, description="[[plan]] tables, at most 100")
        ],
        "limits": Annotated[LimitsConfig, Meta(description="a table, [limits]")],
        "acme": Annotated[AcmeConfig, Meta(description="a table, [acme]")],
        "telemetry": Annotated[TelemetryConfig, Meta(description="a table, [telemetry], with otlp")],
    }
)

# Where the settings that stand in front of tools are asked whether they can be meant.
GOVERNING: Final = "server.calls.policy.policy_faults"


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    servers: tuple[ServerConfig, ...]
    names_servers: bool = False  # in the file; else they are the usual one
    source: Path | None  # the file, where there was one
    servers_file: Path | None = None  # another program's, which names the servers
    scopes: tuple[ScopeConfig, ...] = ()
    upstreams: tuple[UpstreamConfig, ...] = ()
    payments: PaymentsConfig | None = None
    plans: tuple[PlanConfig, ...] = ()
    limits: LimitsConfig = LimitsConfig()
    acme: AcmeConfig = AcmeConfig()
    telemetry: TelemetryConfig | None = None
    written: frozenset[str] = frozenset()  # plain settings that somebody wrote, be it their default


class SettingsProblem(msgspec.Struct, frozen=True):
    """One fault, where it is, and what to write instead. A secret's value is never held."""

    key: str
    what: str
    instead: str = ""
    line: int = 0  # of the file; 0: it does not stand there

    def __str__(self) -> str:
        return f"{self.key}: {self.what}" + (f"; write {self.instead}" if self.instead else "")

    @property
    def found(self) -> str:
        """The problem with its line."""
        return f"line {self.line}, {self}" if self.line else str(self)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """Settings as far as they could be read, and what is wrong with them and therefore left out of `loaded`."""

    loaded: LoadedSettings
    problems: Sequence[SettingsProblem]
    lines: Callable[[], Mapping[str, int]]  # of what stands in the file, and counts
    agents: Sequence[tuple[str, msgspec.Struct]]  # where each is written, and what it says
    in_file: bool  # whether something is wrong there
    given: Mapping[str, str]  # settings that do not come from the file: the name of the variable, or the flag


class ConfigInvalid(Exception):
    def __init__(self, problems: Sequence[SettingsProblem], source: str) -> None:
        super().__init__(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in {source}")
        self.problems = tuple(problems)
        self.source = source


def find_file(named: str | None, environment: Mapping[str, str]) -> Path | None:
    """Return the configuration file: named, or `ostiary.toml` here, or in the platform's config directory; None for none.

    Raises `ConfigInvalid` if one was named and is not there.
    """
    chosen = named or environment.get(ENVIRONMENT_PREFIX + "CONFIG")
    if chosen:
        path = Path(chosen).expanduser()
        if not path.is_file():
            raise ConfigInvalid(
                [
                    SettingsProblem(
                        "config", f"there is no file {path}", "a path that exists, or `ostiary init`"
                    )
                ],
                "the command line",
            )
        return path
    for path in (Path(FILE_NAME), paths.config_home() / FILE_NAME):
        if path.is_file():
            return path
    return None


def load(
    file: Path | None,
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, object] = MappingProxyType({}),
) -> LoadedSettings:
    """Read file, environment and flags, later ones winning. Raises `ConfigInvalid` with every problem found."""
    found = draft(file, environment, flags)
    if found.problems:
        raise ConfigInvalid(found.problems, str(file) if found.in_file else "the settings")
    return found.loaded


def draft(
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object] = MappingProxyType({}),
    *,
    text: str | None = None,
) -> Draft:
    """Read the settings as far as they can be read. `text` is what stood in the file when others read it."""
    problems: list[SettingsProblem] = []
    if text is None:
        text = _read_text(file, problems) if file else ""
    table = _read_toml(file, text, problems) if file else {}
    written = {key: table.pop(key, None) for key in ("server", *_TABLES)}
    settings: dict[str, object] = {}
    hints = typing.get_type_hints(Config, include_extras=True)
    about_servers: list[SettingsProblem] = []
    agents: list[tuple[str, msgspec.Struct]] = []
    servers = _servers(written["server"], about_servers, agents)
    sound_servers = not about_servers
    read = {key: _table(key, shape, written[key], about_servers) for key, shape in _TABLES.items()}
    scopes: tuple[ScopeConfig, ...] = read["scope"] or ()
    payments: PaymentsConfig | None = read["payments"]
    about_servers += _problems(upstream_faults(_each_alone(UpstreamConfig, written["upstream"])))
    # What parts say of each other is looked at where these parts are sound.
    sound = sound_servers and (read["scope"] is not None or written["scope"] is None)
    crossed: list[SettingsProblem] = []
    if sound:
        crossed += _problems(faults(scopes, servers)) + _problems(old_name_faults(servers))
    sold, lost = (payments, frozenset[str]())
    if payments is None and written["payments"] is not None:
        sold, lost = _as_far_as_sound(written["payments"])
    # One that could not be read at all would shift the places of those after it.
    placed = servers if sound_servers or len(servers) == len(_listed(written["server"])) else ()
    plans = _each_alone(PlanConfig, written["plan"])
    crossed += _problems(money_faults(sold, plans, placed, lost=lost, are_all=sound_servers))
    if sound and not crossed and any(server.governed for server in servers):
        # Not known by name: who has nothing of it loads nothing of it.
        look = importlib.import_module(GOVERNING).faults
        crossed += _problems(look(servers, vocabulary(scopes, servers)))
    about_servers += crossed
    for key, value in table.items():
        _take(key, value, hints, settings, problems, key)
    in_file = bool(problems or about_servers)
    given: dict[str, str] = {}
    for name, value in environment.items():
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name.startswith(ENVIRONMENT_PREFIX) and key in hints:
            given[key] = name
            _take(key, _from_text(value, hints[key]), hints, settings, problems, name)
    for key, value in flags.items():
        if value is not None:
            given[key] = shown = "--" + key.replace("_", "-")
            meant = _from_text(value, hints[key]) if isinstance(value, str) else value
            _take(key, meant, hints, settings, problems, shown)

    problems += about_servers
    lines = partial(_lines, text, given.keys())
    return Draft(
        loaded=LoadedSettings(
            config=msgspec.convert(settings, Config),
            servers=servers,
            names_servers=written["server"] is not None,
            source=file,
            scopes=scopes,
            upstreams=read["upstream"] or (),
            payments=payments,
            plans=read["plan"] or (),
            limits=read["limits"] or LimitsConfig(),
            acme=read["acme"] or AcmeConfig(),
            telemetry=read["telemetry"],
            written=frozenset(settings),
        ),
        problems=located(problems, lines),
        lines=lines,
        agents=agents,
        in_file=in_file,
        given=given,
    )


def located(
    problems: Sequence[SettingsProblem], lines: Callable[[], Mapping[str, int]]
) -> Sequence[SettingsProblem]:
    """Return the problems with their lines, in the order of the file; those that do not stand there come last."""
    if not problems:
        return problems
    from server.settings.setting_lines import line_of  # for whoever has something to mend

    known = lines()
    placed = [msgspec.structs.replace(each, line=each.line or line_of(known, each.key)) for each in problems]
    return sorted(placed, key=lambda each: (each.line == 0, each.line))


def _lines(text: str, over_file: Set[str]) -> Mapping[str, int]:
    """Return the line of each place, without those that the environment or a flag overrides."""
    from server.settings.setting_lines import lines_of

    return {place: line for place, line in lines_of(text).items() if place not in over_file}


def misspelt(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable that looks like a setting and is none.

    Others with our prefix are left alone: they may hold an agent's secret.
    """
    names = Config.__struct_fields__
    found: list[str] = []
    for variable in environment:
        key = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if not variable.startswith(ENVIRONMENT_PREFIX) or key in names or variable in NOT_SETTINGS:
            continue
        import difflib  # for whoever mistyped something: nobody else waits for it

        if close := difflib.get_close_matches(key, names, n=1, cutoff=0.7):
            found.append(f"{variable} is not a setting; did you mean {ENVIRONMENT_PREFIX}{close[0].upper()}?")
    return found


def _read_text(file: Path, problems: list[SettingsProblem]) -> str:
    try:
        with file.open("rb") as handle:
            raw = handle.read(CONFIG_BYTES + 1)
        if len(raw) > CONFIG_BYTES:
            raise ValueError("larger than 1 MiB, so not a configuration")
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        problems.append(SettingsProblem(str(file), "is not text in UTF-8", "it anew, as `ostiary init` does"))
    except OSError as error:
        problems.append(SettingsProblem(str(file), f"cannot be read: {error.strerror}"))
    except ValueError as error:
        problems.append(SettingsProblem(str(file), f"cannot be read: {error}"))
    return ""


def _toml_words(error: ValueError) -> str:
    """Return what is wrong as somebody sees it who has written the file."""
    said = str(error)
    if said.startswith(_TWICE):
        names, _, where = said.removeprefix(_TWICE).partition(") twice")
        table = ".".join(name.strip(" '") for name in names.split(",") if name)
        said = f"[{table}] is there twice: put both into one{where}"
    return said.replace("Illegal character '\\n'", "a text is not closed: a quote is missing at its end")


def _read_toml(file: Path, text: str, problems: list[SettingsProblem]) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(SettingsProblem(str(file), f"cannot be read: {_toml_words(error)}"))
    except RecursionError:
        problems.append(SettingsProblem(str(file), "cannot be read: it is nested too deep"))
    return {}


def _take(
    key: str,
    value: object,
    hints: Mapping[str, Any],
    into: dict[str, object],
    problems: list[SettingsProblem],
    shown: str,
) -> None:
    if key not in hints:
        instead = _nearest(key, hints)
        if ".agent" in shown and key in ServerConfig.__struct_fields__:
            instead = "it above the first [[server.agent]]: it belongs to [[server]]"
        problems.append(SettingsProblem(shown, "is not a setting", instead))
        return
    base = _bare(hints[key])
    if _is_union(base):
        base = _table_of(base, value)
    if _is_shape(base):
        before = len(problems)
        _take_parts(value, base, problems, shown)
        if len(problems) > before:
            return
    elif (shape := _part_shape(base)) is not None:
        before = len(problems)
        for name, part in _each(value):
            _take_parts(part, shape, problems, shown + name)
        if len(problems) > before:
            return
    try:
        into[key] = msgspec.convert(value, hints[key])
    except msgspec.ValidationError:
        # Where a reference belongs, people write the secret itself.
        bad = "what is written" if key.endswith(("secret", "token")) else _shown(value)
        problems.append(SettingsProblem(shown, f"cannot be {bad}", _rule(hints[key])))


def _part_shape(hint: Any) -> type[msgspec.Struct] | None:
    """Return the shape of the tables in a list, or of tables by name."""
    of = () if _is_union(hint) else typing.get_args(hint)
    found = of[0 if typing.get_origin(hint) is tuple else 1] if len(of) == 2 else None
    return found if _is_shape(found) else None


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _table_of(union: Any, value: object) -> Any:
    """Return what a value is to be read as: a table, where that is one and a word would do as well."""
    shapes = [part for part in typing.get_args(union) if _is_shape(part)]
    return shapes[0] if shapes and isinstance(value, dict) else union


def _is_shape(hint: Any) -> typing.TypeGuard[type[msgspec.Struct]]:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _each(value: object) -> list[tuple[str, object]]:
    """Return the parts of a list of tables, or of tables by name, as an error names them."""
    if isinstance(value, list):
        return [(f"[{place}]", part) for place, part in enumerate(cast("list[object]", value), 1)]
    if isinstance(value, dict):
        return [(f".{name}", part) for name, part in cast("dict[str, object]", value).items()]
    return []


def _take_parts(
    value: object, shape: type[msgspec.Struct], problems: list[SettingsProblem], shown: str
) -> None:
    """Note what is wrong with the parts of a table, each by its own name."""
    if not isinstance(value, dict):
        return
    hints = typing.get_type_hints(shape, include_extras=True)
    written = cast("dict[str, object]", value)
    for name, part in written.items():
        _take(name, part, hints, {}, problems, f"{shown}.{name}")
    problems.extend(_missing(shape, written, hints, shown))


def _missing(
    shape: type[msgspec.Struct], written: Mapping[str, object], hints: Mapping[str, Any], shown: str
) -> list[SettingsProblem]:
    return [
        SettingsProblem(f"{shown}.{field.name}", "is missing", _rule(hints[field.name]))
        for field in msgspec.structs.fields(shape)
        if field.required and field.name not in written
    ]


def _servers(
    written: object, problems: list[SettingsProblem], agents: list[tuple[str, msgspec.Struct]]
) -> tuple[ServerConfig, ...]:
    if written is None:
        return (ServerConfig(name="main", title="Ostiary demo", agents=(_default_agent(),)),)
    if not isinstance(written, list) or not written:
        problems.append(SettingsProblem("server", "must be one or more tables", "[[server]]"))
        return ()
    found = tuple(
        server
        for position, table in enumerate(cast("list[object]", written), 1)
        if (server := _server(table, f"server[{position}]", problems, agents)) is not None
    )
    seen: set[str] = set()
    for server in found:
        if server.name in seen:
            problems.append(
                SettingsProblem("server.name", f'"{server.name}" is used twice', "a name of its own for each")
            )
        seen.add(server.name)
    return found


def _table(key: str, shape: Any, written: object, problems: list[SettingsProblem]) -> Any:
    """Return what `[key]` or all `[[key]]` tables say; None if there are none, or they cannot be read."""
    into: dict[str, object] = {}
    if written is not None:
        _take(key, written, {key: shape}, into, problems, key)
    return into.get(key)


def _each_alone(shape: type[T], written: object) -> list[T | None]:
    """Return each of the tables of a list; None in the place of one in which something is wrong by itself."""
    return [_table("", shape, each, []) for each in _listed(written)]


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _as_far_as_sound(written: object) -> tuple[PaymentsConfig, Set[str]]:
    """Return what [payments] says without the fields that are wrong by themselves, and the names of those: the rest can be looked at."""
    if not isinstance(written, dict):
        return PaymentsConfig(), frozenset(PaymentsConfig.__struct_fields__)
    hints = typing.get_type_hints(PaymentsConfig, include_extras=True)
    fields, sound = cast("dict[str, object]", written), dict[str, Any]()
    for name, value in fields.items():
        _take(name, value, hints, sound, [], name)
    return PaymentsConfig(**sound), fields.keys() - sound.keys()


def _problems(found: Iterable[Fault]) -> list[SettingsProblem]:
    return [SettingsProblem(key, what, instead) for key, what, instead in found]


def _server(
    table: object, where: str, problems: list[SettingsProblem], found: list[tuple[str, msgspec.Struct]]
) -> ServerConfig | None:
    if not isinstance(table, dict):
        problems.append(SettingsProblem(where, "must be a table", "[[server]]"))
        return None
    fields = dict(cast("dict[str, object]", table))
    agents_written = fields.pop("agent", None)
    hints = typing.get_type_hints(ServerConfig, include_extras=True)
    del hints["agents"]
    values: dict[str, object] = {}
    for key, value in fields.items():
        _take(key, value, {**hints, "agent": None}, values, problems, f"{where}.{key}")
    if not isinstance(agents_written, list) or not agents_written:
        problems.append(
            SettingsProblem(
                f"{where}.agent",
                "is missing",
                '[[server.agent]] with a kind, e.g. "demo", "chat" or "python"',
            )
        )
        return None
    agents = [
        (place := f"{where}.agent[{position}]", _agent(agent, place, problems))
        for position, agent in enumerate(cast("list[object]", agents_written), 1)
    ]
    found += [(place, agent) for place, agent in agents if agent is not None]
    complete = tuple(agent for _, agent in agents if agent is not None)
    try:
        return msgspec.structs.replace(msgspec.convert(values, ServerConfig), agents=complete)
    except msgspec.ValidationError as error:  # every value was checked alone above, so this is a missing one
        problems.append(SettingsProblem(where, str(error)))
        return None


def _agent(table: object, where: str, problems: list[SettingsProblem]) -> msgspec.Struct | None:
    fields = dict(cast("dict[str, object]", table)) if isinstance(table, dict) else {}
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in AGENT_KINDS:
        known = ", ".join(f'"{name}"' for name in AGENT_KINDS)
        problems.append(SettingsProblem(f"{where}.kind", f"cannot be {_shown(kind)}", f"one of {known}"))
        return None
    shape = agent_shape(kind)
    hints = typing.get_type_hints(shape, include_extras=True)
    before = len(problems)
    values: dict[str, object] = {}
    for key, value in fields.items():
        _take(key, value, hints, values, problems, f"{where}.{key}")
    problems.extend(_missing(shape, fields, hints, where))
    if len(problems) > before:
        return None
    agent = msgspec.convert(values, shape)
    own_rules = getattr(importlib.import_module(shape.__module__), "problems", None)
    if own_rules is not None:
        problems.extend(SettingsProblem(f"{where}.{key}", what) for key, what in own_rules(agent))
    return agent


def agent_shape(kind: str) -> type[msgspec.Struct]:
    module, name = AGENT_KINDS[kind]
    return cast("type[msgspec.Struct]", getattr(importlib.import_module(module), name))


def kind_of(agent: msgspec.Struct) -> str:
    """Return the kind of an agent; "hook" for one that callers do not reach."""
    return next((kind for kind, (_, shape) in AGENT_KINDS.items() if shape == type(agent).__name__), "hook")


def _default_agent() -> msgspec.Struct:
    return agent_shape("demo")()


def _from_text(text: str, hint: Any) -> object:
    """Return a flag or variable as the setting's type. Text that cannot be read stays text, and fails its rule."""
    base = _bare(hint)
    if _is_union(base):
        return _from_text(text, typing.get_args(base)[0])  # the others are words, which stay text
    if typing.get_origin(base) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if base is bool:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
            text.lower(), text
        )
    if base in (int, float):
        try:
            return base(text)
        except ValueError:
            return text
    return text


def _rule(hint: Any) -> str:
    for extra in typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ():
        if isinstance(extra, Meta) and extra.description:
            return extra.description
        if isinstance(extra, Meta) and extra.ge is not None and extra.le is not None:
            return f"a number from {extra.ge} to {extra.le}"
    base = _bare(hint)
    if _is_union(base):
        base = typing.get_args(base)[0]
    if typing.get_origin(base) is Literal:
        *words, last = (f'"{word}"' if isinstance(word, str) else str(word) for word in typing.get_args(base))
        return f"{', '.join(words)} or {last}" if words else last
    names = {str: "a text in quotes", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(base, "a value of the right type")


def _bare(hint: Any) -> Any:
    """Return a type without what is annotated of it."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _nearest(key: str, hints: Mapping[str, Any]) -> str:
    import difflib

    close = difflib.get_close_matches(key, hints, n=1)
    if close:
        return close[0]
    # What MCP calls annotations is said of a tool by settings of their own.
    plain = key.casefold().replace("_", "")
    if plain.startswith(("annotation", "readonly", "destructive", "idempotent")):
        return next((name for name in ("read_only", "tier") if name in hints), "")
    return ""


def _shown(value: object) -> str:
    """Return the bad value, short. A table or list is only named: one of headers may hold a credential."""
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "a list"
    if value is None:
        return "empty"
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    return text if len(text) <= 60 else text[:57] + "…"
