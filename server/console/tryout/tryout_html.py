"""The pages of trying out, as HTML. Everything that a tool, its server or a caller has said is escaped; nothing of it is ever markup.

No script: forms are plain, a curl program is text to be copied, and a file of an answer is a link with its bytes in it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from auth.values.requester import shown
from server.console.tryout.tool_form import TryField, as_json
from server.console.tryout.try_call import TryAnswer
from server.lib.json_objects import mapping

# Of one block of an answer: text is cut there, and of a file that is larger only its size is told.
MAX_SHOWN: Final = 100_000
MAX_FILE: Final = 4 * 1024 * 1024
MAX_BLOCKS: Final = 100
PRICE: Final = "io.ostiary/price"
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
NOTHING: Final = Markup("")


def servers(found: Sequence[tuple[str, str]]) -> Markup:
    """To choose from: paths and what they are called."""
    rows = _joined(
        Markup('<li><a href="{}"><strong>{}</strong></a></li>').format(path, title) for path, title in found
    )
    return Markup(
        '<h1>Try tools out</h1><p class="lead">Choose a server.</p><ul class="rows">{}</ul>'
    ).format(rows)


def tools(
    title: str,
    server: str,
    found: Sequence[Mapping[str, Any]],
    *,
    more: str = "",
    first: str = "",
    changing: Collection[str] = (),
) -> Markup:
    """`changing`: the names of those that may change something; `more`: the address of those that come after these; `first`: of those that come before them all, where these are not they."""
    rows = _joined(
        Markup('<li><div><a href="/{}/try/{}"><strong>{}</strong></a>{}<small>{}</small></div></li>').format(
            server,
            tool["name"],
            tool["name"],
            badges(tool, changes=tool["name"] in changing),
            first_line(tool),
        )
        for tool in found
    )
    listed = (
        Markup('<ul class="rows">{}</ul>').format(rows)
        if found
        else Markup(
            "<p>There are no tools that you may call.</p>"
            if not more
            else "<p>You may call none of these.</p>"
        )
    )
    turns = [
        (address, words) for address, words in ((first, "The first tools"), (more, "More tools")) if address
    ]
    if turns:
        links = _joined(Markup('<a href="{}">{}</a>').format(*each) for each in turns)
        listed += Markup('<p class="turn">{}</p>').format(links)
    return Markup(
        '<h1>{}</h1><p class="lead">Choose a tool. It is called as you, and each call is written down like any other.</p>{}'
    ).format(title, listed)


def form(
    server: str,
    tool: Mapping[str, Any],
    fields: Sequence[TryField],
    *,
    hidden: Mapping[str, str],
    raw: str,
    problems: Mapping[str, str],
    as_whom: str,
    above: Markup = NOTHING,
    changes: bool = False,
) -> Markup:
    """What is asked before the call. `raw`: all arguments as JSON, as far as somebody has typed them; `above`: what came of the call before."""
    price = price_of(tool, whole=True)
    return Markup(
        '<h1>{name}</h1><p class="tags">{badges}</p>{description}{above}{price}{problem}'
        '<form method="post" action="/{server}/try/{path}">{hidden}{fields}'
        '<details{open}><summary>All arguments as JSON</summary><div class="field">'
        '<label for="raw">Instead of the fields</label>'
        '<textarea id="raw" name="raw" rows="6" spellcheck="false" autocomplete="off" aria-describedby="raw-hint{raw_problem_id}"{raw_invalid}>\n{raw}</textarea>'
        '<span class="hint" id="raw-hint">What is written here is sent, and the fields above are not.</span>{raw_problem}</div></details>'
        '<p class="after"><button type="submit">{words}</button></p></form>'
        '<p class="soft small after">Called as {whom}. <a href="/{server}/try">Other tools</a></p>'
    ).format(
        name=tool["name"],
        badges=badges(tool, changes=changes),
        words="Continue" if changes or price or destructive(tool) else "Call it",
        description=described(tool),
        above=above,
        price=Markup('<div class="note amber"><p>Costs {}. It is taken from your balance.</p></div>').format(
            price
        )
        if price
        else "",
        problem=_alert("Nothing was called: see what is marked below.") if problems else "",
        server=server,
        path=tool["name"],
        hidden=_hidden(hidden),
        fields=_fields(fields, problems),
        open=Markup(" open") if raw or "raw" in problems else "",
        raw=raw,
        raw_problem_id=Markup(" raw-problem") if "raw" in problems else "",
        raw_invalid=Markup(' aria-invalid="true"') if "raw" in problems else "",
        raw_problem=_problem("raw", problems),
        whom=as_whom,
    )


def sure(
    server: str,
    tool: Mapping[str, Any],
    arguments: Mapping[str, Any],
    *,
    hidden: Mapping[str, str],
    as_whom: str,
    changes: bool,
) -> Markup:
    """Ask before a call that changes or costs something: with what it is made, and at which price."""
    price = price_of(tool, whole=True)
    warning = "This cannot be undone." if destructive(tool) else "It may change something." if changes else ""
    return Markup(
        '<h1>Call {name}?</h1><p class="tags">{badges}</p>{price}{warning}<h2>Arguments</h2>{arguments}'
        '<div class="choice"><a class="button" href="/{server}/try/{name}">Cancel</a>'
        '<form method="post" action="/{server}/try/{name}">{hidden}<button class="quiet" type="submit">Call it</button></form></div>'
        '<p class="soft small after">Called as {whom}.</p>'
    ).format(
        name=tool["name"],
        badges=badges(tool, changes=changes),
        price=Markup('<div class="note amber"><p>Costs {}. It is taken from your balance.</p></div>').format(
            price
        )
        if price
        else "",
        warning=Markup('<div class="note amber"><p>{}</p></div>').format(warning) if warning else "",
        arguments=_pre(as_json(arguments)),
        server=server,
        hidden=_hidden(hidden),
        whom=as_whom,
    )


def answer(tool: Mapping[str, Any], found: TryAnswer, program: str) -> Markup:
    """What came of it, above the form with which to call again."""
    took = Markup('<p class="soft small">It took {}.</p>').format(_seconds(found.seconds))
    if found.result is None:
        return Markup('<section aria-label="Answer">{}{}{}</section>').format(
            _alert(shown(found.problem, 2000)), took, _program(program)
        )
    failed = found.result.get("isError") is True
    blocks = found.result.get("content")
    drawn = [
        _block(mapping(each), failed=failed)
        for each in (cast("list[Any]", blocks) if isinstance(blocks, list) else [])[:MAX_BLOCKS]
    ]
    if "structuredContent" in found.result:
        text = as_json(found.result["structuredContent"])
        drawn.append(Markup("<h3>Structured</h3>{}").format(_pre(text)))
    head = _alert("The tool says that it failed.") if failed else NOTHING
    return Markup(
        '<section aria-label="Answer"><h2>Answer</h2>{}{}{}{}</section><h2>Call it again</h2>'
    ).format(
        head, _joined(drawn) or Markup('<p class="soft">The answer is empty.</p>'), took, _program(program)
    )


def questions(
    server: str,
    tool: Mapping[str, Any],
    asked: Sequence[tuple[str, Mapping[str, Any], Sequence[TryField]]],
    *,
    hidden: Mapping[str, str],
    problems: Mapping[str, str],
) -> Markup:
    """The second form: what the tool wants to know before it goes on."""
    parts = _joined(_question(params, fields, problems) for _, params, fields in asked)
    return Markup(
        "<h1>{name} asks</h1>{problem}"
        '<form method="post" action="/{server}/try/{path}">{hidden}{parts}'
        '<p class="choice"><button class="quiet" type="submit" name="answer" value="decline" formnovalidate>Decline</button>'
        '<button type="submit" name="answer" value="accept">Answer</button></p></form>'
        '<p class="soft small after"><a href="/{server}/try/{path}">Start again</a></p>'
    ).format(
        name=tool["name"],
        problem=_alert("Nothing was sent: see what is marked below.") if problems else "",
        server=server,
        path=tool["name"],
        hidden=_hidden(hidden),
        parts=parts,
    )


# ── what a tool says of itself ───────────────────────────────────────────────────────────────────────────────────────


def described(tool: Mapping[str, Any]) -> Markup:
    words = tool.get("description")
    text = shown(words, 2000) if isinstance(words, str) else ""
    return Markup('<p class="lead">{}</p>').format(text) if text else NOTHING


def first_line(tool: Mapping[str, Any]) -> str:
    words = tool.get("description") or tool.get("title")
    return shown(words.strip().partition("\n")[0], 200) if isinstance(words, str) else ""


def badges(tool: Mapping[str, Any], *, changes: bool) -> Markup:
    """Say in a word each what a call does, and what it costs."""
    found = [("tag warn", "changes things") if changes else ("tag", "only reads")]
    if destructive(tool):
        found.append(("tag bad", "cannot be undone"))
    if price := price_of(tool):
        found.append(("tag warn", price))
    return _joined(Markup(' <span class="{}">{}</span>').format(*each) for each in found)


def destructive(tool: Mapping[str, Any]) -> bool:
    return mapping(tool.get("annotations")).get("destructiveHint") is True


def price_of(tool: Mapping[str, Any], *, whole: bool = False) -> str:
    words = mapping(mapping(tool.get("_meta")).get(PRICE)).get("words")
    if not isinstance(words, str):
        return ""
    return shown(words, 200) if whole else shown(words.partition("; ")[0], 60)


# ── fields ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _fields(fields: Iterable[TryField], problems: Mapping[str, str]) -> Markup:
    return _joined(_field(each, problems) for each in fields)


def _field(field: TryField, problems: Mapping[str, str]) -> Markup:
    if field.kind == "group":
        return Markup("<fieldset><legend>{}{}</legend>{}{}</fieldset>").format(
            field.label,
            _optional(field),
            Markup('<p class="hint">{}</p>').format(field.hint) if field.hint else "",
            _fields(field.fields, problems),
        )
    hint = _hint(field)
    described_by = [
        *([f"{field.name}-hint"] if hint else []),
        *([f"{field.name}-problem"] if field.name in problems else []),
    ]
    about = Markup(' aria-describedby="{}"').format(" ".join(described_by)) if described_by else NOTHING
    if field.name in problems:
        about += Markup(' aria-invalid="true"')
    if field.required and field.kind not in ("text", "long", "list"):
        about += Markup(" required")
    return Markup('<div class="field"><label for="{}">{}{}</label>{}{}{}</div>').format(
        field.name,
        field.label,
        _optional(field),
        _control(field, about),
        Markup('<span class="hint" id="{}-hint">{}</span>').format(field.name, hint) if hint else "",
        _problem(field.name, problems),
    )


def _control(field: TryField, about: Markup) -> Markup:
    plain = about
    if field.sample:
        about += Markup(' placeholder="for example {}"').format(field.sample)
    given = {"name": field.name, "about": about, "value": field.value}
    match field.kind:
        case "choice" | "boolean":
            given["about"] = plain
            return Markup('<select id="{name}" name="{name}"{about}>{options}</select>').format(
                **given, options=_options(field)
            )
        case "long" | "list" | "json":
            rows = max(2, min(12, field.value.count("\n") + 2))
            checked = Markup(' spellcheck="false" autocomplete="off"')
            # The first line end behind a text area's tag is not part of it.
            return Markup(
                '<textarea id="{name}" name="{name}" rows="{rows}"{checked}{about}>\n{value}</textarea>'
            ).format(**given, rows=rows, checked=checked)
        case _:
            mode = {"number": "decimal", "integer": "numeric"}.get(field.kind, "text")
            return Markup(
                '<input id="{name}" name="{name}" type="text" inputmode="{mode}" value="{value}" autocomplete="off"{about}>'
            ).format(**given, mode=mode)


def _options(field: TryField) -> Markup:
    pairs = (
        [("true", "yes"), ("false", "no")]
        if field.kind == "boolean"
        else [(str(at), title) for at, title in enumerate(field.titles)]
    )
    if not field.required or not field.value:
        pairs = [("", "choose" if field.required else "not given"), *pairs]
    return _joined(
        Markup('<option value="{}"{}>{}</option>').format(
            value, Markup(" selected") if value == field.value else "", title or "(empty)"
        )
        for value, title in pairs
    )


def _optional(field: TryField) -> Markup:
    return NOTHING if field.required else Markup(' <span class="soft small">optional</span>')


def _hint(field: TryField) -> str:
    how = {"list": "One per line.", "json": "As JSON."}.get(field.kind, "")
    return " ".join(part for part in (shown(field.hint, 400), how) if part)


def _problem(name: str, problems: Mapping[str, str]) -> Markup:
    if name not in problems:
        return NOTHING
    return Markup('<p class="wrong" id="{}-problem">This {}.</p>').format(name, shown(problems[name], 300))


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _question(params: Mapping[str, Any], fields: Sequence[TryField], problems: Mapping[str, str]) -> Markup:
    message = params.get("message")
    words = Markup('<p class="lead">{}</p>').format(shown(message, 4000) if isinstance(message, str) else "")
    url = params.get("url")
    if params.get("mode") != "url" or not isinstance(url, str):
        return words + _fields(fields, problems)
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return words + Markup("<p>It names a page that cannot be opened from here.</p>")
    return words + Markup(
        '<p><a class="button quiet" href="{}" target="_blank" rel="noopener noreferrer">Open {}</a></p>'
        '<p class="soft small">When you are done there, answer here.</p>'
    ).format(url, parts.hostname)


# ── an answer ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _block(block: Mapping[str, Any], *, failed: bool) -> Markup:
    match block.get("type"):
        case "text":
            return _pre(str(block.get("text", "")))
        case "image" | "audio":
            return _file(str(block.get("data", "")), str(block.get("mimeType", "")), str(block.get("type")))
        case "resource_link":
            return Markup("<p>A resource: <code>{}</code></p>").format(shown(str(block.get("uri", "")), 2000))
        case "resource":
            resource = mapping(block.get("resource"))
            uri = shown(str(resource.get("uri", "")), 2000)
            if isinstance(resource.get("text"), str):
                return Markup("<p><code>{}</code></p>{}").format(uri, _pre(str(resource["text"])))
            return Markup("<p><code>{}</code></p>{}").format(
                uri, _file(str(resource.get("blob", "")), str(resource.get("mimeType", "")), "file")
            )
        case _:
            return _pre(as_json(dict(block)))


def _file(data: str, kind: str, what: str) -> Markup:
    """A picture that browsers know is shown; whatever else it is comes as a download, and is called nothing that a browser would open."""
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return Markup("<p>A {} that cannot be read.</p>").format(what)
    told = f"{shown(kind, 60) or what}, {max(1, size // 1024)} KiB"
    if len(data) > MAX_FILE:
        return Markup("<p>{}: too large to be shown here.</p>").format(told)
    download = Markup(
        '<p><a download="answer" href="data:application/octet-stream;base64,{}">Download</a> ({})</p>'
    ).format(data, told)
    if kind not in PICTURES:
        return download
    return Markup(
        '<p><img class="answer" src="data:{};base64,{}" alt="The picture that the tool answered with"></p>{}'
    ).format(kind, data, download)


def _pre(text: str) -> Markup:
    cut = text[:MAX_SHOWN]
    more = Markup('<p class="soft small">The rest, {} characters, is not shown.</p>').format(
        len(text) - MAX_SHOWN
    )
    # Scrolled by keyboard as well, where it is long.
    return Markup('<pre tabindex="0">{}</pre>{}').format(
        "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in cut),
        more if len(text) > MAX_SHOWN else "",
    )


def _program(program: str) -> Markup:
    return Markup(
        '<details><summary>The same with curl</summary><pre tabindex="0">{}</pre></details>'
    ).format(program)


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _alert(text: str) -> Markup:
    return Markup('<div class="note error" role="alert"><p>{}</p></div>').format(text)


def _hidden(values: Mapping[str, str]) -> Markup:
    return _joined(
        Markup('<input type="hidden" name="{}" value="{}">').format(name, value)
        for name, value in values.items()
    )


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(escape(part) for part in parts)
