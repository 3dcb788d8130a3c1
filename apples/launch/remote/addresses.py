"""Addresses that are numbers."""

from __future__ import annotations

import ipaddress


def is_number(address: str) -> bool:
    r"""Whether an address is one, and no name.

    Examples
    --------
    >>> is_number("10.0.0.1"), is_number("fe80::1%eth0"), is_number("ada"), is_number("10.0.0.1\n")
    (True, True, False, False)
    """
    number, _, zone = address.partition("%")
    if zone and not zone.replace("-", "").replace(".", "").isalnum():
        return False
    try:
        ipaddress.ip_address(number)
    except ValueError:
        return False
    return True
