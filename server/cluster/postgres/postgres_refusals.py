"""Why a database server lets nobody in, as libpq and the server itself say it, and what to do about it.

A connection that was not made has no SQLSTATE, so the words are all there is. They are English unless `lc_messages` of the server says
otherwise; then they are shown as they are, with the hint that is right for most.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from server.store.jobs import StoreUnreachable

_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_PREFIX: Final = re.compile(r"connection (?:failed|is bad): (?=.)")
# psycopg's own, where it tried several hosts, or several addresses of one.
_ATTEMPT: Final = re.compile(r"- host: '?(.*?)'?, port: .*?, hostaddr: (?:'[^']*'|None): (.+)")

_LOOK_AT_CLUSTERS: Final = "on Debian and Ubuntu `pg_lsclusters` shows its port and whether it runs, `sudo systemctl start postgresql` starts it"
_CLOSED: Final = f"PostgreSQL does not run there, or listens at another address or port: {_LOOK_AT_CLUSTERS}"
_FULL: Final = "end connections that nobody needs, or raise max_connections of the database server"
_WAIT: Final = "wait a moment: the database server is being started, stopped or recovered"
_AUTHORITY: Final = (
    "if it is from an authority of your own, `store_ca` names the file with that authority's certificate"
)

# The first whose words are said counts: what is told of one of several hosts may matter more than that another one is down.
_HINTS: Final[tuple[tuple[str, str], ...]] = (
    (
        "password authentication failed",
        "is there such a role, and is that its password? Another one: sudo -u postgres psql -c \"ALTER ROLE {role} PASSWORD 'NEW'\"",
    ),
    ("no password supplied", "the address needs one: postgresql://{user}:PASSWORD@{host}/{database}"),
    (
        "Peer authentication failed",
        "over the socket PostgreSQL lets in the system's user of the same name; with a password use TCP: postgresql://{user}:PASSWORD@localhost/{database}",
    ),
    (
        "no pg_hba.conf entry",
        "the database server lets nobody in this way: add a line to its pg_hba.conf, and reload it",
    ),
    ("too many connections for", "the role or the database has a CONNECTION LIMIT of its own: raise it, or stop others"),
    ("is not permitted to log in", 'sudo -u postgres psql -c "ALTER ROLE {role} LOGIN"'),
    (
        'role "',
        "make it: sudo -u postgres psql -c \"CREATE ROLE {role} LOGIN PASSWORD 'CHANGE-ME'\"",
    ),
    (
        "permission denied for database",
        'sudo -u postgres psql -c "ALTER DATABASE {base} OWNER TO {role}"',
    ),
    (
        'database "',
        "make it: sudo -u postgres psql -c \"CREATE DATABASE {base} OWNER {role} ENCODING 'UTF8' TEMPLATE template0\"",
    ),
    (
        "server requested an MD5 password",
        "the server keeps this password as MD5: set it anew with password_encryption = 'scram-sha-256', or end the address with ?require_auth=md5",
    ),
    (
        "server requested a cleartext password",
        "this server wants to be shown the password: let its pg_hba.conf say scram-sha-256",
    ),
    (
        "server did not complete authentication",
        "this server asks for no password (trust in its pg_hba.conf), so anybody could be listening there: let it say scram-sha-256",
    ),
    ("certificate verify failed", _AUTHORITY),
    (
        "does not match host name",
        "write the name into the address that is in the certificate; hostaddr=… in it says where that is, if no name server does",
    ),
    ("root certificate file", "`store_ca` names a file with the certificate of an authority; it must be there"),
    (
        "does not support SSL",
        "over a network the database server needs a certificate: ssl = on in its postgresql.conf, with ssl_cert_file and ssl_key_file",
    ),
    ("too many clients", _FULL),
    ("remaining connection slots are reserved", _FULL),
    (
        "session is read-only",
        "only a standby answers, or the database was made read-only: name the primary in the address as well, or promote this one",
    ),
    ("server is not in hot standby", _WAIT),
    ("the database system is", _WAIT),
    ("unsupported startup parameter", "name the database server itself, not a pooler"),
    ("received invalid response to SSL negotiation", "something else than PostgreSQL listens there: is it the port?"),
    ("expected authentication request", "something else than PostgreSQL listens there: is it the port?"),
    ("failed to resolve host", "is the host of the address spelt right? `getent hosts NAME` asks as this does"),
    ("Connection refused", _CLOSED),
    (
        "No such file or directory",
        f"no PostgreSQL has its socket in that folder: it does not run, or has another one or another port. {_LOOK_AT_CLUSTERS}",
    ),
    ("Permission denied", "the user who serves may not use the socket in that folder"),
    ("No route to host", "no network leads there from here: a firewall, or a wrong address"),
    ("Network is unreachable", "no network leads there from here"),
    ("timeout", "nothing comes back: a firewall in between drops it, or the address is another machine's"),
    ("does not answer", "nothing comes back: a firewall in between drops it, or the address is another machine's"),
)  # fmt: skip


def all_said(said: str, host: str) -> str:
    """What each of the hosts came to, in one line; each reason once. `host`: the only one."""
    lines = said.strip().splitlines()
    attempts = [(match[1], match[2]) for line in lines if (match := _ATTEMPT.fullmatch(line))]
    return "; ".join(
        dict.fromkeys(_of_host(*each) for each in attempts or ((host, line) for line in lines[:1]))
    )


def _of_host(host: str, said: str) -> str:
    words = " ".join(_PREFIX.sub("", said, count=1).split())
    # Of one that says nothing nothing is said but that.
    return f"{host}: {words}" if words == "connection timeout expired" else words


def hint_for(said: str, parameters: Mapping[str, str]) -> str:
    if "user" not in parameters and ('role "' in said or "Peer authentication" in said):
        return "the address names nobody, so that it is you by the name that you have here: postgresql://USER:PASSWORD@HOST/DATABASE"
    user = parameters.get("user", "USER")
    database = parameters.get("dbname") or parameters.get("user", "DATABASE")
    found = next((hint for words, hint in _HINTS if words in said), StoreUnreachable.hint or "")
    return found.format(
        user=user,
        database=database,
        host=parameters.get("host", "HOST"),
        role=quoted(user),
        base=quoted(database),
    )


def quoted(name: str) -> str:
    """An identifier, as it is typed in SQL between the double quotes of a shell."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    written = '"{}"'.format(name.replace('"', '""'))
    return re.sub(r'([\\"$`])', r"\\\1", written)
