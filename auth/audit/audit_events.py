"""What the rows of the audit trail say, for people: an event in words, and the kinds that somebody looks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

EVENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "api_key.created": "made an API key",
        "api_key.revoked": "ended an API key",
        "api_key.used": "used an API key",
        "audit.acknowledged": "acknowledged what is wrong with the trail",
        "audit.altered": "the trail was tampered with",
        "audit.examined": "looked into what is wrong with the trail",
        "audit.refusals": "more was refused than is written down",
        "audit.swept": "refusals of strangers were swept away",
        "cap.removed": "took a cap away",
        "cap.set": "set a cap",
        "claim.link_made": "made the link that claims the server",
        "client.added": "added a program",
        "client.changed": "changed a program",
        "client.disabled": "disabled a program",
        "client.document": "read a program’s document",
        "client.enabled": "enabled a program",
        "client.managed": "managed its own registration",
        "client.refused": "was not taken for the program that it said it was",
        "client.registered": "registered itself",
        "client.removed": "removed a program",
        "client.secret_rotated": "gave a program a new secret",
        "code.denied": "refused a program at the consent page",
        "code.issued": "let a program in through a browser",
        "consent.forgotten": "forgot what was agreed to",
        "device.approved": "let a device in",
        "device.code_entered": "entered a code",
        "device.denied": "turned a device away",
        "device.redeemed": "logged in with a code",
        "device.requested": "asked to be let in with a code",
        "grant.epoch": "ended every login at once",
        "grant.revoked": "ended a login",
        "invite.link_made": "made an invitation link",
        "key.added": "made a signing key",
        "key.dropped": "dropped a signing key",
        "key.published": "published a signing key",
        "key.replaced": "replaced the refresh key",
        "key.retired": "retired a signing key",
        "ledger.acknowledged": "acknowledged what is wrong with the ledger",
        "passkey.added": "added a passkey",
        "passkey.removed": "removed a passkey",
        "payment.cashed_elsewhere": "a payment was used for another purchase before it was sent",
        "payment.settled_after_refusal": "a payment went through after it was taken for refused",
        "plan.ended": "ended a plan",
        "plan.granted": "gave a plan",
        "refresh.reuse": "used a refresh token twice: the login was ended",
        "reset.link_made": "made a link for a new passphrase",
        "rights.altered": "what gives somebody rights was tampered with",
        "store.copied": "moved everything to another database",
        "store.restored": "the database was restored from a copy",
        "store.sealed": "sealed what the database says of rights",
        "token.bought": "paid for a login",
        "token.revoked": "gave its login back",
        "upstream.accepted": "accepted what an upstream offers",
        "upstream.forgotten": "took back what was accepted of an upstream",
        "upstream.logged_in": "logged in to an upstream",
        "upstream.logged_out": "logged out of an upstream",
        "user.added": "made an account",
        "user.browser_ended": "signed a browser out",
        "user.changed": "changed what somebody may",
        "user.disabled": "disabled an account",
        "user.enabled": "enabled an account",
        "user.invited": "invited somebody",
        "user.joined": "accepted an invitation",
        "user.locked": "locked an account",
        "user.passphrase_changed": "changed their passphrase",
        "user.passphrase_reset": "chose a new passphrase by a link",
        "user.proven_again": "showed once more who they are",
        "user.removed": "removed an account",
        "user.reset": "reset an account",
        "user.signed_in": "signed in",
        "user.signed_out": "signed out",
        "user.unlocked": "unlocked an account",
        "voucher.made": "made a voucher",
        "voucher.redeemed": "redeemed a voucher",
        "voucher.revoked": "ended a voucher",
    }
)


class AuditKind(NamedTuple):
    words: str
    events: Sequence[str]  # as `AuditFilter.events`


KINDS: Final[Mapping[str, AuditKind]] = MappingProxyType(
    {
        "": AuditKind("everything", ()),
        "sign-ins": AuditKind(
            "signing in",
            ("user.signed_in", "user.signed_out", "user.proven_again", "user.browser_ended", "passkey"),
        ),
        "people": AuditKind(
            "people",
            (
                "user.invited", "user.joined", "user.changed", "user.disabled", "user.enabled", "user.locked",
                "user.unlocked", "user.removed", "user.reset", "user.passphrase_reset", "user.passphrase_changed",
                "user.added", "invite", "reset", "claim",
            ),
        ),
        "logins": AuditKind("logins", ("device", "code", "grant", "token", "refresh", "request")),
        "keys": AuditKind("API keys", ("api_key",)),
        "programs": AuditKind("programs", ("client", "consent")),
        "upstreams": AuditKind("upstreams", ("upstream",)),
        "policy": AuditKind("rules", ("policy",)),
        "money": AuditKind("money", ("ledger", "payment", "plan", "voucher", "cap", "token.bought")),
        "server": AuditKind("the server itself", ("key", "audit", "rights", "store")),
    }
)  # fmt: skip


def words_of(event: str) -> str:
    return EVENTS.get(event) or event.replace(".", ": ").replace("_", " ")
