"""The recognition of forms that ask for a secret: a passphrase, a token, the number of a card.

A client is not to be asked for one by form (client/elicitation, "Security Considerations"). A field is judged by all that its author
says of it, in whatever spelling. This stops what is plainly one; an author who hides what a field is for is not found out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

# Ends of words: `userPassword`, `GITHUB_TOKEN` and "the client secret" end in one. English first, then what other languages have.
_ENDS: Final = (
    "password", "passwords", "passwort", "passphrase", "passphrases", "passcode", "passcodes", "passwd", "passkey", "pwd", "secret",
    "secrets", "token", "credential", "credentials", "apikey", "apikeys", "accesskey", "secretkey", "privatekey", "signingkey",
    "encryptionkey", "sshkey", "masterkey", "licensekey", "seedphrase", "recoveryphrase", "mnemonic", "backupcode", "backupcodes",
    "recoverycode", "recoverycodes", "securitycode", "verificationcode", "confirmationcode", "authenticationcode", "authcode",
    "logincode", "accesscode", "onetimecode", "smscode", "pincode", "creditcard", "debitcard", "cardnumber", "cardno", "cardcode",
    "securitynumber", "kennwort", "contrasena", "motdepasse", "senha", "wachtwoord", "haslo", "losenord", "salasana",
)  # fmt: skip
# Whole words only: they are the ends of harmless ones ("spin") or their beginnings.
_WORDS: Final = frozenset(
    {"pin", "pins", "otp", "totp", "hotp", "2fa", "mfa", "cvv", "cvc", "ssn", "jwt", "pw"}
)
_WHOLE: Final = _WORDS | frozenset(_ENDS)
_TEXTS_ONLY: Final = frozenset({"tokens"})  # a number of them is how long an answer may be
_ANYWHERE: Final = ("密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "пароль", "كلمة المرور")
_NAME: Final = "pass"  # as the whole name of a field
_TOGETHER: Final = 3  # words that are read as one: "one time code"
_TAKEN_FOR: Final = str.maketrans("аеорсухіѕјԁԛԝкмтнАЕОРСУХІЅЈКМТН", "aeopcyxisjdqwkmthAEOPCYXISJKMTH")
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
    above = _speaks_of_secrets(
        (params.get("message"), schema.get("title"), schema.get("description")), of_texts=True
    )
    for name, described in _object(schema.get("properties")).items():
        field = _object(described)
        kind = field.get("type")
        if kind not in _FREE or "enum" in field or "oneOf" in field:
            continue  # nobody types anything there
        said = (name, field.get("title"), field.get("description"))
        # Where any text can be typed, the words above the form count as well.
        if (
            name.casefold() == _NAME
            or (above and kind == "string")
            or _speaks_of_secrets(said, of_texts=kind == "string")
        ):
            return name[:_SHOWN]
    return None


def _speaks_of_secrets(said: Iterable[object], *, of_texts: bool) -> bool:
    for text in said:
        if not isinstance(text, str):
            continue
        plain = _UNWANTED.sub(" ", _plain(text[:_READ]))
        if any(word in plain.casefold() for word in _ANYWHERE_PLAIN):
            return True
        words = [word.casefold() for word in _WORD.findall(plain.translate(_TAKEN_FOR))]
        if any(word.endswith(_ENDS) or (of_texts and word in _TEXTS_ONLY) for word in words):
            return True
        if not _WHOLE.isdisjoint(_read_together(words)):
            return True
    return False


def _plain(text: str) -> str:
    """Without accents, and without what is not seen."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize(
        "NFC", "".join(each for each in apart if unicodedata.category(each) not in ("Mn", "Cf"))
    )


_ANYWHERE_PLAIN: Final = tuple(_plain(each) for each in _ANYWHERE)


def _read_together(words: Sequence[str]) -> Iterator[str]:
    """Each by itself, and with up to two that follow: `passWord` and `pass_word` are `password`."""
    for place in range(len(words)):
        for count in range(1, min(_TOGETHER, len(words) - place) + 1):
            yield "".join(words[place : place + count])


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
