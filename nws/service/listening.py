"""Where a service may listen, and what it needs to be installed. It loads neither FastAPI nor uvicorn."""

import importlib.util
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from nws.errors import CodedError
from nws.service.tokens import TokenFile


class ListenRefusedError(CodedError, ValueError):
    """The service does not listen there. Permanent: the message names the missing option, token or package."""

    code = "listen-refused"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen and under which names.

    Attributes
    ----------
    host, port
        The address; port 0 lets the system choose.
    certificate, key
        Files of a TLS certificate and its key; both or none.
    names
        Further names that the Host header may say.
    """

    host: str = "127.0.0.1"
    port: int = 8123
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()

    @property
    def accepted(self) -> tuple[str, ...]:
        """What the Host header may say: the names, and the address as it stands in a URL.

        Examples
        --------
        >>> Listen("fd00::1", names=("weather",)).accepted, Listen("10.0.0.1").accepted
        (('[fd00::1]', 'weather'), ('10.0.0.1',))
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host, *self.names)


def check_exposure(listen: Listen, tokens: TokenFile | None = None) -> None:
    """Refuse to listen beyond loopback without TLS and without a token; there is no way around.

    Parameters
    ----------
    tokens
        Those that callers show; None: the service admits them in another way.

    Raises
    ------
    ListenRefusedError
        It would be open to a network that can read along or walk in.
    """
    if (listen.certificate is None) != (listen.key is None):
        raise ListenRefusedError(
            "--certificate and --key: give both or neither",
            code="option-missing",
            option="--certificate" if listen.certificate is None else "--key",
        )
    if _is_loopback(listen.host):
        return
    if listen.certificate is None:
        raise ListenRefusedError(
            f"{listen.host} is not loopback: tokens would cross the network in clear text; "
            "give --certificate and --key, or listen on 127.0.0.1 behind a proxy with TLS",
            code="tls-missing",
            value=listen.host,
        )
    if tokens is not None and not tokens.tokens():
        raise ListenRefusedError(
            f"{listen.host} is not loopback and {tokens.path} has no token; make one with --new-token",
            code="token-missing",
            value=listen.host,
            file=str(tokens.path),
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def address_of(listen: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; `ListenRefusedError` where it is none.

    Examples
    --------
    >>> address_of("127.0.0.1:8123"), address_of("[::1]:0")
    (('127.0.0.1', 8123), ('::1', 0))
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ListenRefusedError(
            f"--listen {listen}: must be HOST:PORT",
            code="address-invalid",
            option="--listen",
            value=listen,
        )
    return host.strip("[]"), int(port)


def check_installed() -> None:
    """Refuse to go on without what serves HTTP."""
    missing = [m for m in ("fastapi", "uvicorn") if importlib.util.find_spec(m) is None]
    if missing:
        raise ListenRefusedError(
            f"{', '.join(missing)} missing: pip install 'apples[service]'",
            code="package-missing",
            packages=missing,
        )
