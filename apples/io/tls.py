"""TLS 1.3 or later for all services: a certificate identifies the service, a token the client."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import nws
from apples.errors import UsageError, coded


@dataclass(frozen=True, slots=True)
class Tls:
    """Address, certificate and token file of a service that other hosts can reach.

    Attributes
    ----------
    host, port
        The address to listen on; port 0: the system chooses a port.
    certificate, key
        Files of the certificate and its key.
    tokens
        The token file, in the format of `nws serve`.
    """

    host: str
    port: int
    certificate: Path
    key: Path
    tokens: Path


def tls_of(listen: str, certificate: Path | None, key: Path | None, tokens: Path) -> Tls | None:
    """Return the TLS settings of a service; None if `listen` is empty.

    Raises
    ------
    UsageError
        `listen` is not HOST:PORT, the certificate or its key is missing, or the token file has no token.
    """
    if not listen:
        return None
    try:
        host, port = nws.address_of(listen)
    except nws.ListenRefusedError as error:
        raise UsageError(str(error), **coded(error)) from None
    if certificate is None or key is None:
        raise UsageError(
            "--listen needs --certificate and --key: tokens never cross in clear text",
            code="option-missing", option="--key" if certificate else "--certificate",
        )  # fmt: skip
    try:
        known = nws.TokenFile(tokens).tokens()
    except nws.TokenFileError as error:
        raise UsageError(str(error), **coded(error)) from None
    if not known:
        raise UsageError(
            f"--listen: {tokens} has no token; make one with --new-token NAME",
            code="token-missing", option="--listen", file=tokens,
        )  # fmt: skip
    return Tls(host, port, certificate, key, tokens)


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of a service, with its certificate.

    Raises
    ------
    UsageError
        The files are not a certificate and its key. Permanent.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"{certificate}, {key}: {error.strerror or error}",
            code="certificate-invalid", file=certificate, key=str(key),
        ) from None  # fmt: skip
    return context


def client_context(authority: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a client, which trusts the certificates of `authority` or those of the system.

    Raises
    ------
    UsageError
        `authority` is not a file of certificates. Permanent.
    """
    try:
        context = ssl.create_default_context(cafile=str(authority) if authority else None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"{authority}: {error.strerror or error}", code="certificate-invalid", file=authority
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def authorization(token_file: Path) -> dict[str, str]:
    """Return the HTTP header that carries the token in a file.

    Raises
    ------
    UsageError
        Other users may read the file, or it has no token. Permanent.
    """
    try:
        return {"Authorization": f"Bearer {nws.read_token(token_file)}"}
    except ValueError as error:
        fields = {**coded(error, code="token-invalid"), "option": "--token-file"}
        raise UsageError(f"{error} (--token-file)", **fields) from None
