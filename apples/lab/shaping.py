"""Links of a lab that is up, made faster or slower."""

from __future__ import annotations

from apples.errors import UsageError
from apples.lab import commands, network
from apples.lab.record import Lab

SLOWEST, FASTEST = 1e3, 1e11


def shape(lab: Lab, site: str, bandwidth: float) -> None:
    """Give the link between a site and all others a new rate, both ways; holds when this returns.

    Parameters
    ----------
    bandwidth
        Bytes per second.

    Raises
    ------
    UsageError
        The lab has no such site, or that is no rate.
    """
    if site not in lab.sites:
        raise UsageError(f"lab '{lab.name}' has no site '{site}' (it has {', '.join(lab.sites)})")
    if not SLOWEST <= bandwidth <= FASTEST:
        raise UsageError(f"{bandwidth:g} bytes/s: must be from {SLOWEST:g} to {FASTEST:g}")
    number = lab.sites[site]
    lines = [network.shaped(f"{end}{number}", bandwidth, verb="replace") for end in ("up", "down")]
    commands.in_network(lab.switch.pid, ["tc", "-batch", "-"], "".join(lines))
