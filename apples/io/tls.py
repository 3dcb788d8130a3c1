"""TLS as every service and client here speaks it, 1.3 at least: tokens say who asks, certificates who answers."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import nws
from apples.errors import UsageError, coded


@dataclass(frozen=True, slots=True)
class Tls:
    """Where to listen for other hosts, and what to show them.

    Attributes
    ----------
    host, port
        The address; port 0 lets the system choose.
    certificate, key
        Files of the certificate and its key.
    tokens
        The file of tokens, as `nws serve` has them.
    """

    host: str
    port: int
    certificate: Path
    key: Path
    tokens: Path


def tls_of(listen: str, certificate: Path | None, key: Path | None, tokens: Path) -> Tls | None:
    """Return where a service listens for TLS; None where nothing is asked for.

    Raises
    ------
    UsageError
        No HOST:PORT, no certificate, or no token that anybody could present.
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
    """Return what a service shows.

    Raises
    ------
    UsageError
        The files are no certificate and its key. Permanent.
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
    """Return by what a client knows a service: certificates of `authority`, or those of the system.

    Raises
    ------
    UsageError
        `authority` is no file of certificates. Permanent.
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
    """Return the header by which a client presents the token in a file.

    Raises
    ------
    UsageError
        Others may read the file, or it holds no token. Permanent.
    """
    try:
        return {"Authorization": f"Bearer {nws.read_token(token_file)}"}
    except ValueError as error:
        fields = {**coded(error, code="token-invalid"), "option": "--token-file"}
        raise UsageError(f"{error} (--token-file)", **fields) from None
