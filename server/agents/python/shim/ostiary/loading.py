"""Loading an author's file or module: what it registered, which files it is made of, or why it cannot be loaded."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from types import ModuleType, TracebackType
from typing import Any

from .errors import Misuse
from .failures import described, without_us
from .offers import Tool
from .registry import Registry, current

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Files for these say with decorators of their own what they offer.
_SERVER_LIBRARIES = ("fastmcp", "mcp.server")
_NOT_THEIRS = frozenset({"site-packages", "dist-packages", "__pycache__", "node_modules"})


class CannotLoad(Exception):
    """The text is for the author; `files` are what they may change to repair it."""

    def __init__(self, text: str, trace: str, files: list[str]) -> None:
        super().__init__(text)
        self.trace = trace
        self.files = files


class Loaded:
    def __init__(self, registry: Registry, base: str, file: str | None, name: str) -> None:
        self.registry = registry
        self.base = base
        self._file = file
        self._name = name

    def files(self) -> list[str]:
        return sorted({*_files_below(self.base), *self.registry.included})

    def cannot(self, error: BaseException) -> CannotLoad:
        """Return why what is loaded cannot begin."""
        return _cannot_load(error, self.registry, self.base, self._file, self._name)


def load(registry: Registry, *, file: str | None = None, module: str | None = None) -> Loaded:
    """Load a file or module as `python FILE` or `python -m MODULE` would find it. Raises `CannotLoad`."""
    base = os.path.dirname(os.path.abspath(file)) if file is not None else os.getcwd()
    if sys.path[:1] != [base]:
        sys.path.insert(0, base)
    token = current.set(registry)
    try:
        loaded = _file(os.path.abspath(file)) if file is not None else _module(module or "")
        base = _base_of(loaded, base)
        if registry.is_empty():
            _take_functions(loaded, registry)
        registry.check()
    except (Exception, SystemExit) as error:
        raise _cannot_load(error, registry, base, file, file or module or "") from error
    finally:
        current.reset(token)
    return Loaded(registry, base, file, file or module or "")


def load_beside(registry: Registry, path: str) -> None:
    """Load a file that is part of another. Raises whatever is wrong with it."""
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.append(folder)
    registry.included.add(path)
    token = current.set(registry)
    try:
        loaded = _file(path)
        if registry.is_empty():
            _take_functions(loaded, registry)
        registry.check()
    finally:
        current.reset(token)


def _cannot_load(
    error: BaseException, registry: Registry, base: str, file: str | None, name: str
) -> CannotLoad:
    files = sorted({*_files_of(error, base, file), *registry.included})
    explained = _explained(error, base, name)
    # Of a mistake in writing its place is all there is to say, and that is said.
    trace = "" if isinstance(error, SyntaxError) and error.filename else _traced(error)
    return CannotLoad(explained, trace, files)


def _file(path: str) -> ModuleType:
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:  # a file called like a module of the library or of ours
        name = f"{name}_agent"
    while name in sys.modules:  # or like one that it is part of
        name += "_"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Misuse(f"{os.path.basename(path)} is no Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, pickling and type hints look a class's module up here.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module(name: str) -> ModuleType:
    # In the server's own process, a changed module is loaded a second time.
    return importlib.reload(sys.modules[name]) if name in sys.modules else importlib.import_module(name)


def _base_of(module: ModuleType, base: str) -> str:
    """Return the folder whose files are the author's: for a module, that of its package."""
    top = sys.modules.get(module.__name__.partition(".")[0], module)
    path = getattr(top, "__file__", None)
    return os.path.dirname(os.path.abspath(path)) if path else base


def _take_functions(module: ModuleType, registry: Registry) -> None:
    """Take the public functions of a file without decorators as tools. Raises `Misuse` for a file that has its own way to say which are."""
    other = next(filter(None, map(_other_framework, vars(module).values())), None)
    if other is not None:
        import json  # for whoever has something to mend
        from shlex import quote

        name = os.path.basename(module.__file__ or "FILE")
        raise Misuse(
            f"this file is written for {other}, whose decorators say nothing here. It is served as it is by `ostiary serve {quote(name)}`, "
            f'or in the settings by kind = "mcp", command = ["python", {json.dumps(name)}]; or put @tool, @resource(…) or @prompt '
            "(from ostiary import …) over what is to be served"
        )
    public: Any = getattr(module, "__all__", None)
    busy = [price.function.call for price in registry.prices.values()]
    busy += [one.call for one in (*registry.lifespans, *registry.hooks)]
    found: list[Tool] = []
    for name, value in list(vars(module).items()):
        wanted = name in public if public is not None else not name.startswith("_")
        if wanted and inspect.isfunction(value) and value.__module__ == module.__name__ and value not in busy:
            found.append(Tool(value, name=name, defaults=registry.defaults))
    providers = {source for each in found for source in each.function.sources()}
    for each in found:
        if each.function.call not in providers:
            registry.add_tool(each)
    if registry.is_empty():
        raise Misuse("nothing is offered: put @tool (from ostiary import tool) over a function")


def _other_framework(value: Any) -> str | None:
    """Name the library for MCP servers that a name of the file leads to: an object, a class, a function or a module of it."""
    if isinstance(value, ModuleType):
        names = [value.__name__]
    else:
        names = [cls.__module__ for cls in type(value).__mro__]
        if inspect.isclass(value) or inspect.isroutine(value):
            names.append(str(value.__module__))
    for name in names:
        for library in _SERVER_LIBRARIES:
            if f"{name}.".startswith(f"{library}.") and not name.startswith("fastmcp.client"):
                return library
    return None


def _is_theirs(path: str, base: str) -> bool:
    if not path.startswith(base + os.sep) or path.startswith(_OURS):
        return False
    steps = path[len(base) + 1 :].split(os.sep)
    # What Python makes up a name for ("<string>") is no file.
    return not any(step in _NOT_THEIRS or step.startswith((".", "<")) for step in steps)


def _files_below(base: str) -> list[str]:
    found: set[str] = set()
    for module in list(sys.modules.values()):
        path: Any = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and _is_theirs(os.path.abspath(path), base):
            found.add(os.path.abspath(path))
    return sorted(found)


def _files_of(error: BaseException, base: str, file: str | None) -> list[str]:
    found = set(_files_below(base))
    if file is not None:
        found.add(os.path.abspath(file))
    if isinstance(error, SyntaxError) and error.filename:
        found.add(os.path.abspath(error.filename))
    trace = error.__traceback__
    while trace is not None:
        found.add(os.path.abspath(trace.tb_frame.f_code.co_filename))
        trace = trace.tb_next
    return sorted(path for path in found if _is_theirs(path, base))


def _explained(error: BaseException, base: str, name: str) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename, base)}:{error.lineno}: {type(error).__name__}: {error.msg}"
    place = _place(error.__traceback__, base) or _short(name, base)
    text = str(error) if isinstance(error, Misuse) else described(error)
    if isinstance(error, SystemExit):
        text = f'the file ended the program ({text}) while it was loaded; put that under `if __name__ == "__main__":`'
    elif isinstance(error, ModuleNotFoundError) and error.name and "relative import" not in str(error):
        text += f" (for {sys.executable}, Python {'.'.join(map(str, sys.version_info[:3]))})"
    elif isinstance(error, ImportError) and "relative import" in str(error):
        text += "; a file that is part of a package is named as a module, with its dots"
    return f"{place}: {text}"


def _place(trace: TracebackType | None, base: str) -> str | None:
    """Find the last line of the author's own code."""
    place: str | None = None
    while trace is not None:
        path = os.path.abspath(trace.tb_frame.f_code.co_filename)
        if _is_theirs(path, base):
            place = f"{_short(path, base)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _short(path: str, base: str) -> str:
    path = os.path.abspath(path) if os.sep in path else path
    return path[len(base) + 1 :] if path.startswith(base + os.sep) else path


def _traced(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(type(error), error, without_us(error.__traceback__)))
