"""The name of a program that a command starts, as people are told it: behind `npx`, `docker run` and the like, what these run.

The first operand is looked for by the options that are known here. Behind one that is not, nobody knows which word it is, and a wrong one
might be a value that is not to be shown: then the runner's name stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

_LONGEST: Final = 100
_DEEPEST: Final = 4  # runners behind each other


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is told what to run. Options of one letter may stand together."""

    commands: frozenset[str] = frozenset()  # first words that say that it runs something
    bare: bool = False  # which it does without them as well
    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()  # whose value is the name
    glued: bool = False  # all long options have their value behind a =
    sets: bool = False  # NAME=value may stand before it


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PACKAGES: Final = Runner(
    flags=_words(
        "-y --yes --no -q --quiet --no-install --prefer-offline --prefer-online --offline --bun --silent -s --verbose --ignore-existing"
    ),
    values=_words("--registry --cache --prefix --userconfig -w --workspace --loglevel"),
    names=_words("-p --package"),
)
_UVX: Final = Runner(
    flags=_words(
        "-q --quiet -v --verbose -n --no-cache --isolated --offline --refresh --native-tls --no-config --no-progress -U --upgrade"
        " --no-env-file --managed-python --no-managed-python --no-python-downloads --no-index --no-build --no-binary --no-sources"
    ),
    values=_words(
        "-w --with --with-editable --with-requirements -p --python -i --index --index-url --extra-index-url --default-index -f --find-links"
        " --env-file --directory --project --cache-dir --config-file --index-strategy --keyring-provider --prerelease --resolution --color"
        " -c --constraints --overrides -P --upgrade-package --refresh-package --python-platform --link-mode --exclude-newer"
    ),
    names=_words("--from"),
)
_DOCKER: Final = Runner(
    commands=_words("container run"),
    flags=_words(
        "-i --interactive -t --tty -d --detach --rm --init --privileged --read-only -P --publish-all --no-healthcheck --oom-kill-disable"
        " -q --quiet --replace"
    ),
    values=_words(
        "-a --attach -c --cpu-shares --cpus -m --memory --memory-swap --pids-limit --shm-size -e --env --env-file -v --volume --mount --tmpfs"
        " --volumes-from -w --workdir -u --user --userns -p --publish --expose --name --network --net --network-alias --ip --dns --add-host"
        " -h --hostname --entrypoint -l --label --label-file --cap-add --cap-drop --security-opt --ulimit --device --gpus --platform --pull"
        " --restart --runtime --log-driver --log-opt --ipc --pid --cgroupns --sysctl --group-add --cidfile --stop-signal --stop-timeout"
        " -H --host --context --config -L --link"
    ),
)
_RUNNERS: Final[Mapping[str, Runner]] = MappingProxyType(
    {
        r"npx|bunx|pnpx": _PACKAGES,
        r"npm": msgspec.structs.replace(_PACKAGES, commands=_words("exec x")),
        r"pnpm|yarn": msgspec.structs.replace(_PACKAGES, commands=_words("dlx")),
        r"bun": msgspec.structs.replace(_PACKAGES, commands=_words("run x"), bare=True),
        r"uvx": _UVX,
        r"uv": msgspec.structs.replace(
            _UVX,
            commands=_words("tool run"),
            flags=_UVX.flags
            | _words("--frozen --locked --no-sync --no-dev --dev --all-extras --all-groups --active --exact")
            | _words("--no-project --no-editable --no-default-groups -s --script"),
            values=_UVX.values | _words("--package --extra --no-extra --group --only-group --no-group"),
            names=_UVX.names | _words("-m --module"),
        ),
        r"pipx": Runner(
            commands=_words("run"),
            flags=_words("--no-cache -v --verbose -q --quiet --pypackages"),
            values=_words("--python --pip-args -i --index-url --with"),
            names=_words("--spec"),
        ),
        r"(?:python|pypy)[\d.]*": Runner(
            flags=_words("-u -B -s -S -E -I -P -q -O -OO -b -bb -x -i -v"),
            values=_words("-W -X"),
            names=_words("-m"),
        ),
        r"node|nodejs|tsx|ts-node": Runner(
            flags=_words("--no-warnings --enable-source-maps --no-deprecation --trace-warnings --esm"),
            values=_words("-r --require --import --loader --experimental-loader -C --conditions"),
        ),
        r"deno": Runner(
            commands=_words("run"),
            bare=True,
            flags=_words("-A -q -N -R -W -E -S"),
            values=_words("-c --config --import-map --cert -L --log-level"),
            glued=True,
        ),
        r"docker|podman|nerdctl": _DOCKER,
        r"env": Runner(flags=_words("-i --ignore-environment"), values=_words("-u --unset -C --chdir"), sets=True),
    }
)  # fmt: skip
_ADDRESS: Final = re.compile(r"(?P<scheme>[a-z+]{2,20}://)(?:[^/@]*@)?(?P<rest>[^@]+)")
_NAME: Final = re.compile(r"[\w@./:+~^,\[\]-]+")


def program_name(command: Sequence[str]) -> str:
    """Return what a command runs: `notes-server`, or `npx @acme/notes` for what npx runs."""
    names = [_file_name(command[0])]
    words = command
    while len(names) < _DEEPEST:
        runner = _runner(_file_name(words[0]))
        words = () if runner is None else _run_by(runner, words[1:])
        if not words:
            break
        name = _shown(words[0])
        if not name:
            break
        names.append(name)
    return " ".join(names)


def _runner(name: str) -> Runner | None:
    return next((each for pattern, each in _RUNNERS.items() if re.fullmatch(pattern, name)), None)


def _run_by(runner: Runner, words: Sequence[str]) -> Sequence[str]:
    """Return the words from what it runs on; none where nobody can say which that is."""
    told, guarded, place = runner.bare or not runner.commands, False, 0
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--" and not guarded:
            guarded = True
        elif guarded or not word.startswith("-"):
            if runner.sets and "=" in word:
                continue
            if word not in runner.commands:
                return words[place - 1 :] if told else ()
            told = True
        else:
            option, value = _option(runner, word)
            if option in runner.names or option in runner.values:
                if value is None:
                    value = words[place] if place < len(words) else ""
                    place += 1
                if option in runner.names:
                    return (value,)
            elif option not in runner.flags and not (runner.glued and word.startswith("--")):
                return ()
    return ()


def _option(runner: Runner, word: str) -> tuple[str, str | None]:
    """Return the last option of a word, and the value that stands in it."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    if word in runner.flags:
        return word, None
    for at, letter in enumerate(word[1:], 2):
        option = f"-{letter}"
        if option not in runner.flags:
            return option, word[at:] or None
    return f"-{word[-1]}", None


def _shown(name: str) -> str:
    """Return the name of a package, a module, an image, or of a file without its folders; of an address without who logs in there."""
    address = _ADDRESS.fullmatch(re.split("[?#]", name, maxsplit=1)[0])
    if address is not None:
        name = address["scheme"] + address["rest"]
    elif name[:1] in ("/", ".", "~"):
        name = _file_name(name)
    return name[:_LONGEST] if _NAME.fullmatch(name) else ""


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]
