"""Choose the hosts of a job: by its application's model if that has answered, else by the host list."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from apples.cluster.host_preference import HostPreference
from apples.cluster.live_job import LiveJob
from apples.cluster.orders import EstimateOrder
from apples.scheduling.policy import NodeLoad

SHARE_STEP: Final = 0.05
"""Step to which host shares are rounded before a model is asked."""


class HostChooser:
    """Choose hosts for jobs, and record the source of each choice (model or host list).

    Parameters
    ----------
    prefer
        Chooses by the host list.
    loads
        Host -> its load by others; the caller updates it with each report.
    """

    def __init__(self, prefer: HostPreference, loads: Mapping[str, NodeLoad]) -> None:
        self._prefer, self._loads = prefer, loads
        self._chosen_by: dict[int, str] = {}
        self._compared: tuple[tuple[str, ...], tuple[tuple[str, float], ...], bool] | None = None

    def choose(
        self,
        job: LiveJob,
        hosts: Sequence[str],
        count: int,
        beside: Sequence[str],
        lasting: Collection[str],
        speeds: Mapping[str, float],
        anchor: str,
    ) -> tuple[str, ...]:
        """Return `count` of the hosts, which a job gets or keeps.

        Parameters
        ----------
        beside
            Hosts that it also has and keeps.
        lasting
            Hosts with leases that last long enough.
        speeds
            Host -> rows a second that it has measured there.
        anchor
            The host that it cannot leave; empty: none.
        """
        kept = [anchor] if anchor in hosts and count else []
        quiet = [host for host in hosts if not self._owner_is_back(host)]
        for better in (quiet, [host for host in quiet if host in lasting]):
            if len(better) >= count:
                hosts = better
        rest = [host for host in hosts if host not in kept]
        wanted = count - len(kept)
        prefer = self._prefer.under(self._shares())
        if speeds:
            prefer = prefer.measured(speeds)
        if job.submission.messages:
            prefer = prefer.talking(job.submission.messages)
        self._chosen_by[job.number], best = "", None
        if job.waits and job.host_choices is not None:
            self._chosen_by[job.number], best = self._by_model(job, rest, wanted, prefer)
        return (*kept, *(best or prefer.best(rest, wanted, (*beside, *kept))))

    def _by_model(
        self, job: LiveJob, hosts: Sequence[str], count: int, prefer: HostPreference
    ) -> tuple[str, tuple[str, ...] | None]:
        """Return the source of the choice, in words, and the hosts; None: those of the host list."""
        if not job.host_choices:
            return "the host list; its model cannot choose", None
        for choice, seconds in job.host_choices:
            free = [host for host in choice if host in hosts]
            if len(free) >= count:
                return f"its model: about {seconds:.3g} s in all", prefer.best(free, count)
        return "the host list; no set of hosts that its model prefers was free", None

    def take_reason(self, job: LiveJob, timeout: float) -> str:
        """Return the source of the hosts of a starting job; empty: the host list, because no model was asked."""
        words = self._chosen_by.pop(job.number, "")
        if not words and job.estimate is None and self.asks(job, tuple(self._prefer.places)):
            return f"the host list; its model had not answered after {timeout:g} s"
        return words

    def order(self, job: LiveJob, incarnation: int, hosts: Sequence[str]) -> EstimateOrder:
        """Return the order that asks a job's model for its run time and its best hosts."""
        one = job.submission
        among = tuple(hosts) if self.asks(job, hosts) else ()
        shares = dict(self._rounded_shares(among))
        return EstimateOrder(
            job.number, incarnation, one.maximum, one.work, one.user, among=among, shares=shares
        )

    def asks(self, job: LiveJob, hosts: Sequence[str]) -> bool:
        """Whether a job's model is asked for the best hosts: it has one, and the hosts differ.

        A job with messages needs no model: they determine the hosts better.
        """
        one = job.submission
        if "template" not in one.work or one.messages or one.maximum >= len(hosts):
            return False
        return not self._are_alike(tuple(hosts), tuple(self._rounded_shares(hosts)))

    def _are_alike(self, hosts: tuple[str, ...], shares: tuple[tuple[str, float], ...]) -> bool:
        if self._compared is None or self._compared[:2] != (hosts, shares):
            alike = self._prefer.under(dict(shares)).alike(hosts)
            self._compared = hosts, shares, alike
        return self._compared[2]

    def _owner_is_back(self, host: str) -> bool:
        return host in self._loads and self._loads[host].owner_back

    def _shares(self) -> dict[str, float]:
        return {host: load.share for host, load in self._loads.items()}

    def _rounded_shares(self, hosts: Collection[str]) -> list[tuple[str, float]]:
        """Return the part of a processor that others leave on each host, unless that is all of it."""
        rounded = [
            (host, max(1, round(load.share / SHARE_STEP)) * SHARE_STEP)
            for host, load in sorted(self._loads.items())
            if host in hosts
        ]
        return [(host, share) for host, share in rounded if share < 1.0]
