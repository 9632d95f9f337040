"""`ostiary upgrade`: is there a newer release, and how does one come to it. Nothing is fetched but the answer to that."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click

from server import __version__
from server.cli import local, terminal
from server.cli.form import Form, form_of_this
from server.cli.terminal import clean, json_option, out, say

HOW: Final[Mapping[Form, str]] = MappingProxyType(
    {
        "executable": "put the new executable in the place of this one, then start the server again",
        "package": "install the new wheel as this one was (pipx install --force, uv tool install --force, pip install), then start the"
        " server again",
        "checkout": "git pull, then start the server again; its environment follows by itself",
    }
)


@click.command("upgrade")
@click.option(
    "--check", is_flag=True, help="ask the address of the setting `releases` for the newest version"
)
@local.which_server
@json_option
def command(check: bool, as_json: bool) -> int:
    """Say how this program is updated; with --check, whether there is a newer version.

    The program never updates itself. The new version copies the database to backups/ before it brings it up to date.
    """
    form = form_of_this()
    if not check:
        if as_json:
            terminal.out_json({"version": __version__, "form": form, "how": HOW[form]})
        else:
            out(f"ostiary {__version__}, installed as {'an' if form == 'executable' else 'a'} {form}")
            say(HOW[form])
        return 0
    from server.client.http_exchange import open_client
    from server.client.releases import LatestRelease, latest, releases_problem

    url = local.settings().config.releases
    if not url:
        raise terminal.CliError(
            "no address of releases is configured",
            hint='write releases = "https://…/latest.json" into ostiary.toml',
        )
    if (problem := releases_problem(url)) is not None:
        raise terminal.CliError(f"releases {problem}", exit_code=terminal.EXIT_MISUSED)

    async def ask() -> LatestRelease:
        async with open_client() as client:
            return await latest(client, url, running=__version__)

    found = terminal.run_async(ask)
    if as_json:
        terminal.out_json(
            {
                "version": __version__,
                "latest": found.version,
                "newer": found.newer,
                "page": found.page or None,
            }
        )
    elif found.newer:
        out(f"{clean(found.version)} is out; this is {__version__}")
        if found.page:
            out(clean(found.page))
        say(HOW[form])
    else:
        out(f"{__version__} is the newest")
    return 0
