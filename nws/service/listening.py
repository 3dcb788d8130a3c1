"""Addresses of a service, and the packages that it needs. It loads neither FastAPI nor uvicorn."""

import errno
import importlib.util
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nws.errors import CodedError
from nws.service.tokens import TokenFile


class ListenRefusedError(CodedError, ValueError):
    """The service does not listen there. Permanent: the message names the missing option, token or package."""

    code = "listen-refused"


class AddressUnusableError(CodedError, OSError):
    """Nothing can listen at an address: its port is in use, or the address is not of this machine."""

    code = "address-unusable"


@dataclass(frozen=True, slots=True)
class Listen:
    """The address of a service, and its names.

    Attributes
    ----------
    host, port
        The address; port 0 lets the system choose.
    certificate, key
        Files of a TLS certificate and its key; both or none.
    names
        Further names in the Host header.
    """

    host: str = "127.0.0.1"
    port: int = 8123
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()

    @property
    def accepted(self) -> tuple[str, ...]:
        """Valid names in the Host header: the names, and the address as in a URL.

        Examples
        --------
        >>> Listen("fd00::1", names=("weather",)).accepted, Listen("10.0.0.1").accepted
        (('[fd00::1]', 'weather'), ('10.0.0.1',))
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host, *self.names)


def check_exposure(listen: Listen, tokens: TokenFile | None = None) -> None:
    """Refuse to listen beyond loopback without TLS and without a token; no option turns this off.

    Parameters
    ----------
    tokens
        Tokens of the clients; None: the service authenticates clients in another way.

    Raises
    ------
    ListenRefusedError
        Other hosts could read the tokens, or use the service without one.
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


def bound_sockets(listen: Listen) -> list[socket.socket]:
    """Return a socket, bound but not yet listening, for each address of the host.

    Raises
    ------
    AddressUnusableError
        Another process listens there, or this machine does not have the address.
    """
    sockets: list[socket.socket] = []
    port, refused = listen.port, OSError(errno.EADDRNOTAVAIL, "the name has no address")
    try:
        found = socket.getaddrinfo(
            listen.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            try:
                sockets.append(_bound(family, (address[0], port, *address[2:])))
            except OSError as error:
                # Without IPv6 in the kernel, /etc/hosts may still map localhost to ::1 too.
                if family != socket.AF_INET6 or error.errno not in IPV6_OFF:
                    raise
                refused = error
                continue
            port = sockets[-1].getsockname()[1]  # port 0: the same one for all addresses
        if not sockets:
            raise refused
    except OSError as error:
        for one in sockets:
            one.close()
        raise address_unusable(listen, error) from error
    return sockets


IPV6_OFF: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # asyncio sets this only where the protocol number is that of TCP; without it, each answer to a client
        # that keeps its connection waits 40 ms for the acknowledgement of the answer's head.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind(address)
    except OSError:
        found.close()
        raise
    return found


def address_unusable(listen: Listen, error: OSError) -> AddressUnusableError:
    """Return the error of an address that cannot be used."""
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    address, reason = f"{host}:{listen.port}", error.strerror or str(error)
    return AddressUnusableError(
        f"--listen {address}: {reason}; end the process that listens there, or give another address",
        option="--listen",
        address=address,
        reason=reason,
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def address_of(listen: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; `ListenRefusedError` if it is invalid.

    Examples
    --------
    >>> address_of("127.0.0.1:8123"), address_of("[::1]:0")
    (('127.0.0.1', 8123), ('::1', 0))
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ListenRefusedError(
            f"--listen {listen}: must be HOST:PORT, with a port from 0 to 65535",
            code="address-invalid",
            option="--listen",
            value=listen,
        )
    return host.strip("[]"), int(port)


def check_installed() -> None:
    """Raise ListenRefusedError if a package of the HTTP server is missing."""
    missing = [m for m in ("fastapi", "uvicorn") if importlib.util.find_spec(m) is None]
    if missing:
        raise ListenRefusedError(
            f"{', '.join(missing)} missing: pip install 'apples[service]'",
            code="package-missing",
            packages=missing,
        )
