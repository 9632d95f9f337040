"""The recognition of forms that ask for a secret: a passphrase, a token, the number of a card.

A client is not to be asked for one by form (client/elicitation, "Security Considerations"). A field is judged by all that its author
says of it, in whatever spelling, and by the words above the form where these ask for a secret, or where the field has none of its own.
This stops what is plainly one; an author who hides what a field is for is not found out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import accumulate
from typing import Any, Final, cast

# Ends of words: `userPassword`, `GITHUB_TOKEN` and "the client secret" end in one. English first, then what other languages have.
_ENDS: Final = (
    "password", "passwords", "passphrase", "passphrases", "passcode", "passcodes", "passwd", "passkey", "pwd", "secret",
    "secrets", "token", "credential", "credentials", "apikey", "apikeys", "accesskey", "secretkey", "privatekey", "signingkey",
    "encryptionkey", "sshkey", "masterkey", "licensekey", "seedphrase", "recoveryphrase", "mnemonic", "backupcode", "backupcodes",
    "recoverycode", "recoverycodes", "securitycode", "verificationcode", "confirmationcode", "authenticationcode", "authcode",
    "logincode", "accesscode", "onetimecode", "smscode", "digitcode", "authenticatorcode", "pincode", "creditcard", "debitcard",
    "cardnumber", "cardno", "cardcode", "securitynumber",
)  # fmt: skip
_FOREIGN: Final = (
    "passwort", "kennwort", "contrasena", "motdepasse", "senha", "wachtwoord", "haslo", "losenord", "salasana",
)  # fmt: skip
# Whole words only: they are the ends of harmless ones ("spin") or their beginnings.
_WORDS: Final = frozenset(
    {"pin", "pins", "otp", "totp", "hotp", "2fa", "mfa", "cvv", "cvc", "ssn", "jwt", "pw"}
)
_ALL_ENDS: Final = (*_ENDS, *_FOREIGN)
_WHOLE: Final = _WORDS | frozenset(_ALL_ENDS)
# Of electronics and maps, and to pin something.
_OTHER_PINS: Final = frozenset(
    {"gpio", "bcm", "led", "analog", "digital", "output", "data", "clock", "signal", "map", "to"}
)
# Of those the ones that are numbers.
_OF_DIGITS: Final = (
    "code", "codes", "pin", "pins", "otp", "2fa", "mfa", "cvv", "cvc", "ssn", "card", "cardnumber", "cardno", "securitynumber",
)  # fmt: skip
_TEXTS_ONLY: Final = frozenset({"tokens"})  # a number of them is how long an answer may be
_ANYWHERE: Final = ("密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "пароль", "كلمة المرور")
_NAME: Final = "pass"  # as the whole name of a field
_TOGETHER: Final = 3  # words that are read as one: "one time code"
_TAKEN_FOR: Final = str.maketrans("аеорсухіѕјԁԛԝкмтнАЕОРСУХІЅЈКМТН", "aeopcyxisjdqwkmthAEOPCYXISJKMTH")
# A code that is good once is told by how it comes: "the 6 digits that we sent you", "the code by SMS".
_CODES: Final = frozenset({"code", "codes", "digits", "characters"})
_SENT: Final = frozenset({"sent", "texted", "mailed", "emailed"})
_GOT: Final = frozenset({"received", "receive", "got", "get"})
_YOURS: Final = frozenset({"you", "your"})
_BY: Final = frozenset({"by", "via", "from", "in", "through", "per", "on"})
_CHANNELS: Final = frozenset({"sms", "authenticator", "whatsapp"})
_MAIL: Final = _CHANNELS | {"mail", "email", "phone", "mobile", "text", "inbox"}
# How many words behind a code it is told how it comes, behind that by what and to whom; and behind "sent" to whom, and what.
_TOLD_WITHIN: Final = 10
_SOON: Final = 4
_BY_WHAT: Final = 3
_TO_WHOM: Final = 2
_CODE_WITHIN: Final = 5
_SENTENCE_END: Final = re.compile(r"[!?;()\n]|\.(?=\s|$)")
# What above a form makes a secret that follows soon the thing that is asked for, and what ends its reach.
_ASKING: Final = frozenset(
    {
        "enter", "paste", "type", "give", "provide", "input", "insert", "supply", "submit", "send", "share", "tell", "write", "put",
        "copy", "confirm", "specify", "fill", "need", "needs", "require", "requires", "want", "wants", "your", "bitte", "ihr", "ihre",
        "ihren", "dein", "deine", "deinen", "votre", "su", "tu", "uw",
    }
)  # fmt: skip
_FURTHER: Final = 6  # words
_BEHIND_NAME: Final = 3
_ENDS_REACH: Final = frozenset(
    {"of", "for", "to", "on", "about", "with", "at", "from", "that", "whose", "when", "if"}
)
_PARTS: Final = frozenset(
    {"value", "content", "contents", "characters", "digits", "words", "copy", "part", "rest"}
)
_WANTED: Final = frozenset(
    {"required", "needed", "wanted", "missing", "expected", "please", "here", "below", "eingeben", "angeben"}
)
# What above a form says that something else is asked for.
_SOMETHING_ELSE: Final = frozenset(
    {
        "which", "who", "how", "where", "title", "name", "named", "called", "message", "description", "label", "subject", "topic",
        "branch", "reason", "comment", "summary", "caption",
    }
)  # fmt: skip
# Behind a secret's name: something of it, and not its value.
_ATTRIBUTES: Final = frozenset(
    {"name", "names", "symbol", "standard", "amount", "count", "limit", "budget", "type", "pair", "santa"}
)
_SAYS_NOTHING: Final = frozenset(
    {"value", "values", "input", "answer", "text", "string", "field", "data", "response", "reply", "entry", "content", "result",
     "code", "key", "the", "your", "please", "enter", "type", "here"}
)  # fmt: skip
_FREE: Final = frozenset({"string", "number", "integer"})
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# "(do not give us your PIN)" asks for none.
_UNWANTED: Final = re.compile(
    r"\b(?:do not|don.?t|never|not to)\s+(?:\w+\s+){0,2}?(?:enter|give|include|paste|provide|put|send|share|submit|type|use|write)\b[^.;:()!?\n]*",
    re.IGNORECASE,
)
_SHOWN: Final = 40
# Nobody reads on in what stands beside one field; a form has 64 of them at most.
_READ: Final = 2_000


def secret_field(params: Mapping[str, Any]) -> str | None:
    """Return the name of the first field that asks for a secret; None: no field does. `params` are those of a form that can be asked."""
    schema = _object(params.get("requestedSchema"))
    above = [
        _Sentence(part)
        for text in _texts(params.get("message"), schema.get("title"), schema.get("description"))
        for part in _SENTENCE_END.split(text)
    ]
    for name, field in _free_fields(schema):
        is_text = field.get("type") == "string"
        own = [_Sentence(text) for text in _texts(name, field.get("title"), field.get("description"))]
        mute = all(each.says_nothing() for each in own)
        if (
            name.casefold() == _NAME
            or any(each.names_secret(of_texts=is_text) for each in own)
            or any(each.asks_for_secret(of_texts=is_text, mute=mute) for each in above)
        ):
            return name[:_SHOWN]
    return None


def _free_fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield those in which somebody types."""
    for name, described in _object(schema.get("properties")).items():
        field = _object(described)
        if field.get("type") in _FREE and "enum" not in field and "oneOf" not in field:
            yield name, field


class _Sentence:
    """A sentence, or several that stand beside a field, and the secrets that it speaks of."""

    def __init__(self, plain: str) -> None:
        said = plain.casefold()
        self._words: Final = [word.casefold() for word in _WORD.findall(plain.translate(_TAKEN_FOR))]
        # In languages that are written without blanks, or in other letters.
        self._unread = any(word in said for word in _ANYWHERE_PLAIN)
        self._is_sent = _is_sent_code(self._words)

    def says_nothing(self) -> bool:
        return all(len(word) == 1 or word in _SAYS_NOTHING for word in self._words)

    def names_secret(self, *, of_texts: bool) -> bool:
        return self._unread or self._is_sent or next(self._secrets(of_texts=of_texts), None) is not None

    def asks_for_secret(self, *, of_texts: bool, mute: bool) -> bool:
        """Say whether it does so above a form. `of_texts`: of a field for any text. `mute`: of one that has no words of its own."""
        if self._is_sent or (self._unread and of_texts):
            return True
        else_asked = not _SOMETHING_ELSE.isdisjoint(self._words)
        for start, stop in self._secrets(of_texts=of_texts):
            name = "".join(self._words[start:stop])
            if not of_texts and not name.endswith(_OF_DIGITS):
                continue
            if name.endswith(_FOREIGN):
                return True
            if not _ATTRIBUTES.isdisjoint(self._words[stop : stop + 1]):
                continue
            if (mute and not else_asked) or self._is_asked(start, stop):
                return True
        return False

    def _is_asked(self, start: int, stop: int) -> bool:
        """Say whether this secret is what is asked for."""
        words = self._words
        after = [word for word in words[stop : stop + _BEHIND_NAME] if word not in ("is", "are", "was")]
        if not _WANTED.isdisjoint(after[:1]):
            return True
        for place in range(start - 1, max(-1, start - 1 - _FURTHER), -1):
            word, before = words[place], words[place - 1] if place else ""
            if word in _ASKING or (before == "what" and word in ("is", "s", "are")):
                return True
            if word in _SOMETHING_ELSE or (word in _ENDS_REACH and before not in _PARTS):
                return False
        return False

    def _secrets(self, *, of_texts: bool) -> Iterator[tuple[int, int]]:
        """Yield where each is named: by a word, or by up to three that are read as one, as `passWord` and `pass_word` are."""
        words = self._words
        for place, word in enumerate(words):
            for stop, name in enumerate(accumulate(words[place : place + _TOGETHER]), place + 1):
                if name in ("pin", "pins") and place and words[place - 1] in _OTHER_PINS:
                    continue
                if name in _WHOLE or (
                    name == word and (word.endswith(_ALL_ENDS) or (of_texts and word in _TEXTS_ONLY))
                ):
                    yield place, stop


def _is_sent_code(words: Sequence[str]) -> bool:
    """Say whether these tell of a code that was sent to somebody, or that a program of theirs shows."""
    for place, word in enumerate(words):
        after = words[place + 1 : place + 1 + _TOLD_WITHIN]
        if word in _CODES:
            for at, each in enumerate(after):
                soon = after[at + 1 : at + 1 + _SOON]
                if (
                    (each in _SENT and _has(soon, _YOURS | _MAIL))
                    or (each in _GOT and _has(soon, _MAIL))
                    or (each in _BY and word != "characters" and _has(soon[:_BY_WHAT], _CHANNELS))
                ):
                    return True
        elif word in _SENT:
            if _has(after[:_TO_WHOM], _YOURS) and _has(after, _CODES):
                return True
            at = next((at for at, each in enumerate(after[:_CODE_WITHIN]) if each in _CODES), None)
            if at is not None and _has(after[at + 1 : at + 1 + _SOON], _YOURS):
                return True
    return False


def _has(words: Sequence[str], any_of: Set[str]) -> bool:
    return not any_of.isdisjoint(words)


def _texts(*said: object) -> Iterator[str]:
    """Yield those that are texts, without accents, and without what is not wanted."""
    return (_UNWANTED.sub(" ", _plain(text[:_READ])) for text in said if isinstance(text, str))


def _plain(text: str) -> str:
    """Without accents, and without what is not seen."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize(
        "NFC", "".join(each for each in apart if unicodedata.category(each) not in ("Mn", "Cf"))
    )


_ANYWHERE_PLAIN: Final = tuple(_plain(each) for each in _ANYWHERE)


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
