"""Libraries that the executable unpacks when they are first imported, not at every start as its launcher does with the rest.

Two of them are most of what there is to unpack. A command that needs neither does not wait for them, and a server that is about
to need both (`unpack_all`, in a thread) has them unpacked while it loads everything else. They travel as modules that hold a piece
of a file each: the spec makes those, and `ostiary_packed.FILES` names them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from threading import Lock
from types import ModuleType

# What is written at once, the kernel keeps in one piece and maps as one: at a megabyte at a time, ten megabytes of the libraries
# that nobody looks at would count as the server's memory.
WRITE_BYTES = 32 * 1024

PackedFiles = Mapping[str, tuple[str, Sequence[str]]]  # module → its file, and the modules of its pieces


class _LateLoader(ExtensionFileLoader):
    def __init__(self, name: str, path: str, unpack: Callable[[], None]) -> None:
        super().__init__(name, path)
        self._unpack = unpack

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._unpack()
        return super().create_module(spec)


class LateLibraries:
    """A finder for `sys.meta_path`. Files are written below `folder`, which the launcher removes with all that is in it."""

    def __init__(self, files: PackedFiles, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._locks = {name: Lock() for name in files}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Does not wait: the interpreter's lock of all imports is held here, and pieces are imported, too."""
        if fullname not in self._files:
            return None
        file = str(self._folder / self._files[fullname][0])
        loader = _LateLoader(fullname, file, partial(self.unpack, fullname))
        return spec_from_file_location(fullname, file, loader=loader)

    def unpack(self, name: str) -> None:
        """Whoever comes second waits. Raises OSError when there is no room."""
        place, pieces = self._files[name]
        file = self._folder / place
        with self._locks[name]:
            if not file.exists():
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Another process of the same executable may be at it in the same folder: each writes its own.
                unfinished = file.with_name(f"{file.name}.{os.getpid()}")
                with unfinished.open("wb", buffering=0) as out:
                    for piece in pieces:
                        module = import_module(piece)
                        data = memoryview(module.DATA)
                        while data:
                            data = data[out.write(data[:WRITE_BYTES]) :]
                        # Its package keeps the module; what is in it must not stay.
                        del module.DATA, sys.modules[piece]
                unfinished.replace(file)

    def unpack_all(self) -> None:
        """For a thread. What fails here fails again where somebody can be told: at the import."""
        with suppress(OSError):
            for name in self._files:
                self.unpack(name)
