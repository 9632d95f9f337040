"""What an event of the log means in words, for whoever reads it at a terminal. How a line looks is console_log.py's.

An event that has no sentence here is told by its name and its fields, so that nothing is lost. A sentence has what a person acts
upon; the other fields of its event are shown to whoever wants everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# An event, and its sentence: fields stand in braces.
SENTENCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "agent.bad_catalog": "{agent} offers what cannot be offered: {reason}",
        "agent.broke_protocol": "{agent} does not speak as it should: {reason}",
        "agent.broken": "{agent} cannot be loaded",
        "agent.command_failed": "{agent}: the program of {tool} {how}",
        "agent.ended": "{agent} has ended: {reason}",
        "agent.exchanged": "{agent} was stuck, and has a new process",
        "agent.gone": "{agent} is no longer served",
        "agent.ignores_cancellation": "{agent} goes on with {calls} calls that were cancelled",
        "agent.left_out": "{server}: {count} tools are left out: {reasons}",
        "agent.not_refreshed": "{server}: its tools could not be listed again: {reason}",
        "agent.not_reloaded": "{agent} goes on as it was, for what is written now cannot be loaded: {reason}",
        "agent.not_started": "{agent} cannot be started: {reason}",
        "agent.payment": "{agent}: {said}",
        "agent.reloaded": "{agent} was loaded again",
        "agent.said": "{agent}: {line}",
        "agent.says_too_much": "{agent} printed {lines} lines more within a second",
        "agent.started_again": "{agent} is running again",
        "agent.stuck": "{agent} is stuck in {functions}",
        "audit.head": "the audit trail ends at {head}",
        "audit.head_not_written": "where the audit trail ends cannot be written down: {reason}",
        "audit.not_settled": "refusals could not be counted in the audit trail: {reason}",
        "backup.failed": "no back-up was made: {reason}",
        "backup.made": "backed up as {file}",
        "calls.not_recorded": "calls are not on record for now: {reason}",
        "certificate.account_made": "registered with the certificate authority {authority}",
        "certificate.crashed": "the certificate cannot be kept up to date: an error of ours",
        "certificate.failed": "no new certificate: {reason}; {hint}",
        "certificate.not_kept": "the certificate could not be written down: {reason}",
        "certificate.obtained": "got a certificate for {names}, good for {good_days} days",
        "certificate.revoked": "the certificate was revoked: {reason}",
        "certificate.wanted": "asking {authority} for a certificate for {names}",
        "charge.not_written": "what a call of {tool} costs was not written: {reason}",
        "clock.jumped": "somebody has set the clock by {seconds} s",
        "clock.suspicious": "the clock seems to be {days_ahead} days ahead: nothing is swept for {sweeps_in_hours} hours; if it is wrong, set it (timedatectl)",
        "connection.refused": "a connection was refused: {reason}",
        "http.unknown_host": "a request for {host} was refused: {hint}",
        "http.few_descriptors": "only {allowed} files may be open, and {wanted} are wanted for {connections} connections",
        "http.request": "{method} {path}  {status}  {ms} ms  {ip}",
        "ledger.head": "the ledger ends at {head}",
        "ledger.head_not_written": "where the ledger ends cannot be written down: {reason}",
        "library.reported": "{library}: {said}",
        "limits.not_counted": "a call of {tool} was not counted: {reason}",
        "log.dropped": "{count} lines of this log are missing: whoever reads it was too slow",
        "log.more": "{count} requests have no line of their own; most come from {most_from} ({of_it})",
        "openapi.left_out": "{agent}: {count} operations are left out: {operations}",
        "payment.cashed_elsewhere": "the payment {payment} is refused: a facilitator carried it out before it was sent from here ({transaction}), for the payer or for another server that takes money at this address",
        "payment.facilitator_down": "the facilitator cannot be reached: {reason}",
        "payment.facilitator_trouble": "the facilitator {url}: {reason}",
        "payment.refused": "a payment was refused: {reason}",
        "payment.settled": "a payment of {amount} is settled",
        "payment.settled_after_refusal": "the payment {payment} has gone through after it was taken for refused: it is booked (ostiary ledger statement)",
        "payment.settled_without_row": "the payment {payment} has gone through, and nothing is kept of it any more: it was not booked",
        "price.unheard": "without [payments] calls of {tools} are free, whatever their agents say that they cost: {hint}",
        "price.unpayable": "{reason}",
        "purchase.booked_late": "what a call of {tool} cost is booked now",
        "purchase.not_booked": "what a call cost could not be booked, and will not be",
        "purchase.not_booked_yet": "what a call of {tool} cost is booked later: {reason}",
        "purchase.unreadable_receipt": "what a call of {tool} took from the balance at its upstream is not booked: {reason}",
        "server.draining": "stopping: calls that run have {seconds} s to end",
        "program.confinement": "{reason}; {hint}",
        "server.memory_not_closed": "processes of the same user can look into this one's memory",
        "server.open_to_the_network": "{server} lets in anybody who can reach it, without a login",
        "server.started": "serving {origin}",
        "server.stopped": "stopped",
        "server.unclaimed": "nobody has claimed this server yet; {hint}",
        "session.began": "a client has begun a session ({version})",
        "session.resumed": "a client goes on with its session ({version})",
        "settings.not_reloaded": "the settings as they are now cannot be used: {problems}; {hint}",
        "settings.reloaded": "the settings were read again, and count for {servers}",
        "settings.wait_for_restart": "changed, and not in use before the next start: {settings}",
        "skills.faults": "{agent}: {count} faults: {faults}",
        "skills.not_reloaded": "{agent} goes on as it was: {reason}",
        "store.ballast_short": "the disk is nearly full; {hint}",
        "store.damaged": "the database is damaged: {reason}; {hint}",
        "store.database_missing": "no database beside the key: {hint}",
        "store.not_checked": "the database could not be checked: {reason}",
        "store.not_swept": "nothing was swept from the database: {reason}",
        "store.quick_again": "the database confirms writes in time again",
        "store.slow": "{reason}",
        "store.stopped": "the database had to stop: {reason}",
        "store.unavailable": "the database cannot take this now: {reason}",
        "task.ended": "{tool} has ended as a task: {outcome}",
        "task.interrupted": "{tool}: its task was interrupted by the last stop",
        "task.lost": "{tool}: its task is lost",
        "task.revoked": "{tool}: its task was ended with the login of its caller",
        "task.runs": "{tool} goes on as a task",
        "tls.not_reloaded": "the certificate as it is now cannot be used: {reason}",
        "tls.reloaded": "the certificate was read again",
        "tool.adrift": "{tool} goes on though its caller has left",
        "tool.called_by_old_name": "{tool} was called {old}, as it was before",
        "tool.crashed": "{tool} failed in a way that is an error of ours",
        "tool.limited": "{tool} was refused: {limit} is used up for {seconds} s",
        "tool.mocked": "{server}: made up in place of an agent's: {tools}",
        "tool.not_called_again": "{tool} was not called again: {reason}",
        "tools.refused_by_hosts": "{server}: {reason}; {hint}",
        "upstream.connected": "{agent} is there: {server}, with {tools} tools",
        "upstream.failed": "{agent} cannot be used: {reason}",
        "upstream.left_out": "{agent}: {count} {kind} are left out: {which}",
        "upstream.login_wanted": "{upstream} {reason}: ostiary upstream login {upstream}",
        "upstream.lost": "{agent} {reason}",
        "upstream.met": "{upstream} was met for the first time, and what it offers accepted",
        "upstream.not_let_in": "{agent} does not accept the credential that it is shown; where that is a login, ostiary upstream login renews it",
        "upstream.question_refused": "{agent} {reason}",
        "upstream.still_lost": "still out of order: {agent} {reason}",
        "upstream.withheld": "{upstream}: to be accepted: {count}, of these changed: {changed} (ostiary upstream list): {names}",
        "worker.ended": "worker {worker} has ended: {ended}; it is started again in {again_in_seconds} s",
        "worker.killed": "worker {worker} did not end, and was killed",
        "worker.not_answered": "worker {worker}: the question {question} has no answer, by an error of ours",
        "worker.ready": "worker {worker} serves",
        # Decisions of identity. `who` did it, `program` is let in, or is not.
        "identity.api_key.created": "{who} made the key {program}",
        "identity.api_key.revoked": "{who} revoked the key {program}",
        "identity.claim.link_made": "{who} made a link that claims this server",
        "identity.client.registered": "{program} has registered, from {ip}",
        "identity.code.denied": "{who} turned {program} away",
        "identity.code.issued": "{who} let in {program}, from {ip}",
        "identity.code.redeemed": "{program} is logged in",
        "identity.device.approved": "{who} let in {program}, which asked from {ip}",
        "identity.device.denied": "{who} turned {program} away, which asked from {ip}",
        "identity.device.redeemed": "{program} is logged in",
        "identity.device.requested": "{program} asks to be let in, from {ip}",
        "identity.device.withdrawn": "{program} no longer asks to be let in",
        "identity.grant.epoch": "{who} ended all logins: {reason}",
        "identity.grant.revoked": "{who} ended the login of {program}: {reason}",
        "identity.invite.link_made": "{who} made an invitation",
        "identity.key.published": "a new signing key is announced",
        "identity.key.replaced": "another key signs from now on",
        "identity.key.retired": "an old signing key has gone",
        "identity.owner.claimed": "{who} claimed this server, from {ip}",
        "identity.passkey.added": "{who} added a passkey",
        "identity.passkey.removed": "{who} removed a passkey",
        "identity.token.revoked": "{program} has logged out",
        "identity.user.browser_ended": "{who} signed a browser out",
        "identity.user.passphrase_changed": "{who} changed the passphrase",
        "identity.user.signed_in": "{who} signed in, from {ip}",
        "identity.user.signed_out": "{who} signed out",
    }
)
IDENTITY: Final = "identity."
REFUSED: Final = "refused"
# What tells things apart for programs and says nothing to people.
IDS: Final = frozenset({"boot", "client", "grant", "principal", "request", "user_agent"})
# These are other fields, as people call them.
ABOUT_IDENTITY: Final = frozenset({"actor", "outcome", "person", "program", "who"})
LISTED: Final = 5


def sentence_of(event: str, fields: Mapping[str, object]) -> tuple[str, frozenset[str]]:
    """What it means, and which of its fields say so."""
    if event.startswith(IDENTITY):
        return _decided(event, fields)
    form = SENTENCES.get(event)
    if form is not None:
        told = _Told(fields)
        try:
            return form.format_map(told), frozenset(told.used)
        except KeyError:  # of another version of the event
            pass
    return spaced(event), frozenset()


def spaced(event: str) -> str:
    return event.replace(".", " ").replace("_", " ")


def shown(value: object) -> str:
    """A field as it stands in a sentence."""
    if isinstance(value, list):
        parts = [str(part) for part in value[:LISTED]]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        more = len(value) - LISTED  # pyright: ignore[reportUnknownArgumentType]
        return ", ".join(parts) + (f" and {more} more" if more > 0 else "")
    return f"{value:g}" if isinstance(value, float) else str(value)


class _Told(dict[str, str]):
    """Fields, and which were asked for."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        super().__init__()
        self.used: set[str] = set()
        self._fields = fields

    def __missing__(self, name: str) -> str:
        value = self._fields[name]
        self.used.add(name)
        return shown(value)


def _decided(event: str, fields: Mapping[str, object]) -> tuple[str, frozenset[str]]:
    who = shown(fields.get("who") or fields.get("actor", "somebody"))
    program = shown(fields.get("program") or fields.get("client") or "a program")
    named = {**fields, "who": who, "program": program, "ip": fields.get("ip", "this machine")}
    form = SENTENCES.get(event)
    if form is not None and fields.get("outcome") != REFUSED:
        told = _Told({"reason": "", **named})
        words = form.format_map(told).removesuffix(": ")
        return words, frozenset(told.used) | ABOUT_IDENTITY
    words = spaced(event.removeprefix(IDENTITY))
    parts = [who, *([program] if "client" in fields or "program" in fields else [])]
    if fields.get("outcome") == REFUSED:
        words += " was refused"
    words = f"{words}: {', '.join(dict.fromkeys(parts))}"
    if "reason" in fields:
        words += f": {shown(fields['reason'])}"
    if "ip" in fields:
        words += f", from {shown(fields['ip'])}"
    return words, frozenset({"reason", "ip"}) | ABOUT_IDENTITY
