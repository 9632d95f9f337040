"""New settings for a running server: read, checked, begun beside the old ones, and taken all at once; or left alone, and said so.

Settings are read again when their file changes, and at SIGHUP, which also has those agents made anew whose settings refer to files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec
import trio

from auth.values.identity_model import Millis
from server.agents.base.catalog import CatalogError
from server.agents.base.file_watch import changed, followed, look
from server.calls.servers.server_opening import OpenServers, now_millis
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError
from server.settings.private_paths import kept_out_paths
from server.settings.resolved_settings import Resolved
from server.settings.secret_reference import SecretUnreadable
from server.settings.setting_changes import change
from server.settings.settings_reader import ConfigInvalid, kind_of
from server.store.jobs import StoreError

# Reads everything again as it was read at the start: the same file, the same flags. Raises `ConfigInvalid`.
ReadSettings: TypeAlias = Callable[[], Resolved]

_FILE_REFERENCE: Final = b'"file:'


class SettingsState(msgspec.Struct, kw_only=True):
    """The state of the settings that are served."""

    read_at: Millis
    problems: tuple[str, ...] = ()  # why those that are written now are not served
    waits: tuple[str, ...] = ()  # what of them counts from the next start


class Reloading:
    """`run` watches the file; `reload` is for anybody, one after the other."""

    def __init__(self, read: ReadSettings, started: Resolved, servers: OpenServers, log: Logger) -> None:
        self._read = read
        self._started = started
        self._servers = servers
        self._log = log
        self._one_at_a_time = trio.Lock()
        # As it was before anybody was told that the server is there.
        self._known = look(followed(started.source)) if started.source else {}
        self.state = SettingsState(read_at=now_millis())

    async def run(self) -> None:
        file = self._started.source
        if file is None:
            return
        while True:
            await changed(self._known)
            # Before they are read: what is written meanwhile is read next.
            self._known = look(followed(file))
            await self.reload()

    async def reload(self, *, renew: bool = False) -> None:
        """Take the settings as they are now, or keep what is served. `renew`: also remake agents whose settings refer to files."""
        async with self._one_at_a_time:
            try:
                await self._take(renew=renew)
            except ConfigInvalid as invalid:
                self._stay([problem.found for problem in invalid.problems])
            except CatalogError as error:
                self._stay(error.problems)
            except (BackendError, SecretUnreadable, StoreError, ValueError) as error:
                self._stay([str(error)])

    async def _take(self, *, renew: bool) -> None:
        newer = await trio.to_thread.run_sync(self._read)
        servers = self._servers
        servers.kept_paths.update(kept_out_paths(newer))
        found = change(servers.settings, self._started, newer)
        touched = {server.name: server for server in found.servers}
        if renew:
            for name, server in servers.settings.items():
                if any(_refers_to_files(agent) for agent in server.agents):
                    touched.setdefault(name, server)
        offerings = await servers.prepare(touched.values(), _refers_to_files if renew else lambda _: False)
        servers.take(offerings)
        self.state = SettingsState(read_at=now_millis(), waits=found.waits)
        if touched:
            self._log.info("settings.reloaded", servers=sorted(touched))
        if found.waits:
            self._log.warning(
                "settings.wait_for_restart", settings=list(found.waits), hint="they count from the next start"
            )

    def _stay(self, problems: Sequence[str]) -> None:
        self.state.problems = tuple(problem[:500] for problem in problems[:20])
        self._log.error(
            "settings.not_reloaded",
            problems=list(self.state.problems),
            hint="what was served before still is; `ostiary doctor` says more",
        )


def _refers_to_files(agent: msgspec.Struct) -> bool:
    # Where people connect their accounts is settled at the start.
    personal = kind_of(agent) == "mcp" and getattr(agent, "identity", "") in ("person", "person-key")
    return not personal and _FILE_REFERENCE in msgspec.json.encode(agent, enc_hook=str)
