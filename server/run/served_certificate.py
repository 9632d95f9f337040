"""The certificate that is served: read from two files and again when they change, or got from an authority.

With neither, TLS is ended by somebody else, or nobody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import trio

from server.agents.base.file_watch import FileWatch, look
from server.calls.servers.server_opening import CannotStart
from server.lib.log.logger import Logger
from server.run.node_membership import Membership
from server.settings.resolved_settings import Resolved
from server.settings.secret_reference import read_secret
from server.store.jobs import Store, StoreDb, StoreError
from server.transport.http.server_tls import Tls, TlsError, new_context

if TYPE_CHECKING:
    from server.certificates.certificate_keeper import CertificateKeeper, CertificatePlan
    from server.certificates.kept_certificates import IssuedCertificate, KeepsCertificates
    from server.certificates.name_proofs import Proofs
    from server.certificates.shared_certificate import MakeKeeper, SharedKeeper
    from server.transport.http.issued_tls import IssuedTls

# Certificates are renewed days before they end: nobody waits for a new one, and a disk is not to be asked all the time.
LOOK_SECONDS: Final = 5.0
# A certificate of files that ends so soon was forgotten by whatever renews it.
ENDS_SOON_SECONDS: Final = 7 * 86_400.0


class FileCertificate:
    """The certificate of two files. One that will not do is told of once, and what was served before still is.

    `described` is for whoever is at the machine, with times in milliseconds; `note`, empty where all is well, for /readyz.
    """

    def __init__(self, tls: Tls, log: Logger) -> None:
        self.tls: Final = tls
        self._log = log
        self._problem = ""

    async def run(self) -> None:
        files = [str(file) for file in self.tls.files]
        watch = FileWatch(look(files))
        while True:
            await trio.sleep(LOOK_SECONDS)
            # In a thread: one of them may lie on a disk that does not answer.
            now = await trio.to_thread.run_sync(look, files, abandon_on_cancel=True)
            if watch.settled(now):
                watch = FileWatch(now)
                self.reload()

    def reload(self) -> None:
        try:
            self.tls.reload_tls()
        except TlsError as problem:
            self._problem = str(problem)
            self._log.error("tls.not_reloaded", reason=self._problem)
        else:
            self._problem = ""
            self._log.info("tls.reloaded")

    def described(self) -> Mapping[str, Any]:
        from server.certificates.certificate_state import described_facts
        from server.certificates.x509_certificates import BadChain, facts_of

        try:
            facts = facts_of(self.tls.served)
        except BadChain as problem:
            return {
                "kind": "files",
                "serving": None,
                "problem": self._problem or f"the certificate {problem}",
            }
        return {"kind": "files", "serving": described_facts(facts), "problem": self._problem}

    def note(self) -> str:
        if self._problem:
            return f"certificate: {self._problem}; the one of before is served"
        serving = self.described()["serving"]
        if serving is not None and (left := serving["not_after"] / 1000 - time.time()) < ENDS_SOON_SECONDS:
            return (
                "certificate: it is over" if left <= 0 else f"certificate: ends in {left / 86_400:.1f} days"
            )
        return ""

    def key_authorization(self, token: str) -> str | None:
        """Return what is shown at port 80 for a name that is being proved there."""
        return None


class AcmeCertificate:
    """The certificate of an authority, and what `ostiary certificate` asks for (`RenewsCertificate`)."""

    def __init__(self, tls: IssuedTls, keeper: CertificateKeeper | SharedKeeper, proofs: Proofs) -> None:
        self.tls: Final = tls
        self.keeper: Final = keeper
        self.key_authorization = proofs.key_authorization
        self.run = keeper.run
        self.note = keeper.note
        self.described = keeper.described

    def reload(self) -> None:
        """Do nothing: nobody else writes it."""


ServedCertificate: TypeAlias = FileCertificate | AcmeCertificate


def of_files(resolved: Resolved, log: Logger) -> FileCertificate | None:
    """Return the certificate of files, if there is one. Raises `TlsError`."""
    config = resolved.config
    if not config.tls_certificate:
        return None
    return FileCertificate(
        Tls(Path(config.tls_certificate).expanduser(), Path(config.tls_key).expanduser()), log
    )


async def of_an_authority(resolved: Resolved, data_dir: Path, log: Logger) -> AcmeCertificate | None:
    """Return the certificate of the only process that serves, if a domain is configured.

    Raises `CannotStart` and `SecretUnreadable`.
    """
    if not resolved.config.domain:
        return None
    from server.certificates.certificate_files import AcmeFiles, KeptInFiles
    from server.certificates.kept_certificates import CannotKeep
    from server.certificates.name_proofs import Proofs
    from server.transport.http.issued_tls import IssuedTls

    proofs = Proofs()
    tls = IssuedTls(proofs)
    try:
        files = AcmeFiles(data_dir)

        def take(issued: IssuedCertificate) -> None:
            try:
                tls.take(files.certificate_file)
            except TlsError as problem:
                raise CannotKeep(str(problem), hint="move it away: a new one is got then") from None

        keeper = _keeper_maker(resolved, proofs, log)(KeptInFiles(files), take)
        await keeper.begin()
    except CannotKeep as problem:
        raise CannotStart(str(problem), problem.hint) from problem
    return AcmeCertificate(tls, keeper, proofs)


async def of_nodes(
    resolved: Resolved,
    data_dir: Path,
    store: Store,
    membership: Membership,
    subkey: Callable[[str], bytes],
    log: Logger,
) -> AcmeCertificate | None:
    """Return the certificate that one node gets for all that serve from the same database."""
    if not resolved.config.domain:
        return None
    from server.certificates.certificate_files import FOLDER, AcmeFiles
    from server.certificates.certificate_rows import AcmeVault
    from server.certificates.kept_certificates import CannotKeep
    from server.certificates.name_proofs import Proofs
    from server.certificates.shared_certificate import SharedKeeper
    from server.certificates.x509_certificates import key_pem, load_pem
    from server.transport.http.issued_tls import IssuedTls

    proofs = Proofs()
    tls = IssuedTls(proofs)

    def take(issued: IssuedCertificate) -> None:
        context = new_context()
        try:
            load_pem(context, issued.chain, key_pem(issued.key).encode())
        except OSError as error:  # of TLS as well
            raise CannotKeep(f"the certificate cannot be served: {error.strerror or error}") from None
        tls.use(context)

    def before() -> AcmeFiles | None:
        return AcmeFiles(data_dir) if (data_dir / FOLDER).is_dir() else None

    keeper = SharedKeeper(
        _plan(resolved),
        store,
        AcmeVault(subkey, os.urandom),
        proofs,
        log,
        boot_id=membership.node.boot_id,
        node=membership.node.name,
        make=_keeper_maker(resolved, proofs, log),
        take=take,
        before=before,
    )
    store.on_changes(keeper.apply_changes)
    store.on_trust(keeper.trust)
    membership.on_lapse.append(keeper.let_go)
    membership.on_loss.append(keeper.look_for_left)
    try:
        await keeper.begin()
    except CannotKeep as problem:
        raise CannotStart(str(problem), problem.hint) from problem
    return AcmeCertificate(tls, keeper, proofs)


def back_into_files(
    subkey: Callable[[str], bytes], data_dir: Path, *, authority: str, told: Callable[[str], None]
) -> Callable[[StoreDb], None]:
    """Return a job for moving rows of nodes into the file of one server, which then owns their certificates.

    `authority` is its directory in the settings. The job raises `StoreError`.
    """
    from server.certificates.certificate_rows import AcmeVault
    from server.certificates.copy_back_to_files import bring_back
    from server.certificates.kept_certificates import CannotKeep

    def job(db: StoreDb) -> None:
        try:
            bring_back(
                db, vault=AcmeVault(subkey, os.urandom), data_dir=data_dir, directories=[authority], told=told
            )
        except CannotKeep as problem:
            raise StoreError(
                str(problem), hint=f"{problem.hint or 'mend that'}; then give the same command again"
            ) from problem

    return job


def _keeper_maker(resolved: Resolved, proofs: Proofs, log: Logger) -> MakeKeeper:
    """Return how keepers are made. Raises `SecretUnreadable`."""
    from server.certificates.acme_exchange import AuthorityWire
    from server.certificates.certificate_keeper import CertificateKeeper
    from server.certificates.signed_requests import ExternalAccount

    acme = resolved.acme
    eab = ExternalAccount(acme.eab_key_id, read_secret(acme.eab_key).reveal()) if acme.eab_key else None
    wire = AuthorityWire(Path(acme.ca_file).expanduser() if acme.ca_file else None)

    def make(kept: KeepsCertificates, take: Callable[[IssuedCertificate], object]) -> CertificateKeeper:
        return CertificateKeeper(_plan(resolved), kept, proofs, wire, log, take=take, eab=lambda: eab)

    return make


def _plan(resolved: Resolved) -> CertificatePlan:
    from server.certificates.certificate_keeper import CertificatePlan
    from server.certificates.certificate_order import ways

    config, acme = resolved.config, resolved.acme
    return CertificatePlan(
        names=config.domain,
        directory=acme.directory,
        ways=tuple(ways(config.http_port)),
        profile=acme.profile,
        contact=acme.contact,
    )


def waits_for(certificate: ServedCertificate | None) -> str | None:
    """Return what is said at the start where https does not answer yet."""
    if certificate is None:
        return None
    told = certificate.described()
    if told["kind"] != "acme" or told["serving"] is not None:
        return None
    host = urlsplit(str(told["authority"])).hostname
    trouble = told["trouble"]
    return (
        f"not yet: {trouble['words']}"
        if trouble
        else f"waiting for one from {host}; https answers once it is here"
    )


def ends_at(certificate: ServedCertificate) -> float:
    """Return when it ends, in seconds since 1970; 0 where there is none."""
    serving = certificate.described()["serving"]
    return 0.0 if serving is None else serving["not_after"] / 1000
