"""The learned state for display: each correction with its value, its runs and its two errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import hat
from apples.agent.information import InformationPool, start_seconds
from apples.agent.models.corrections import (
    BORDER_WAIT,
    CO_RUN_SLOWDOWN,
    KINDS,
    LINK,
    MIN_TESTS,
    SHARE_BIAS,
    SLOWDOWN,
    START,
    STRAGGLER_FACTOR,
    Correction,
    Evidence,
)
from apples.agent.models.learned import (
    MIN_SETS,
    THREADS,
    Learned,
    LearnedKey,
    documents,
    forget,
    forget_host,
)
from apples.agent.models.links import LearnedLink
from apples.errors import UsageError
from apples.resources import Host
from apples.ui.units import counted, digits, duration

if TYPE_CHECKING:
    from apples.agent.documents import CorrectionInfo

MAX_LOG_ERROR = 10.0
"""Larger errors, in logarithms, are shown as this one."""
MAX_LISTED = 20
"""Names or folders that an error lists."""
DEAR = 1.05
"""Least factor of a correction that is named as a reason to leave a host out."""
LABELS = {
    SLOWDOWN: "its slowdown",
    CO_RUN_SLOWDOWN: "its co-run slowdown",
    SHARE_BIAS: "its share bias",
    BORDER_WAIT: "its border wait",
    LINK: "its link",
    START: "its start",
    STRAGGLER_FACTOR: "the straggler factor with it",
}


def described(information: InformationPool, usable: Sequence[Host]) -> list[CorrectionInfo]:
    """Return each correction of a usable host, or of a link or a set of them, in use or not."""
    names = {host.identity: host.name for host in usable}
    names |= {f"{identity}{THREADS}": f"{name} by threads" for identity, name in names.items()}
    sites = {host.site for host in usable}
    launcher = information.launcher

    def label(kind: str, key: Sequence[str]) -> tuple[str, ...] | None:
        """Return the names of a key; None if a name is not among these hosts."""
        if kind == START:
            return (launcher, names[key[1]]) if key[0] == launcher and key[1] in names else None
        return tuple(names[part] for part in key) if names.keys() >= set(key) else None

    crossed = [
        link for pair, link in information.learned.links.sites.items() if sites.issuperset(pair)
    ]
    return [*_described(information.learned, label), *map(_link, crossed)]


def described_all(learned: Learned) -> list[CorrectionInfo]:
    """Return all corrections of an application, hosts by identity."""
    return [
        *_described(learned, lambda _, key: tuple(key)),
        *map(_link, learned.links.sites.values()),
    ]


def _described(
    learned: Learned, label: Callable[[str, Sequence[str]], tuple[str, ...] | None]
) -> Iterator[CorrectionInfo]:
    for known in learned.corrections.values():
        of = label(known.kind, known.key)
        if of is not None:
            yield _correction(known, of, applied=learned.in_use(known))
    for pair, link in learned.links.hosts.items():
        of = label(LINK, pair)
        if of is not None:
            yield {**_link(link), "of": list(of)}


def _correction(known: Correction, of: tuple[str, ...], *, applied: bool) -> CorrectionInfo:
    in_seconds, seconds = KINDS[known.kind].in_seconds, known.candidate
    if known.kind == START:
        seconds = max(0.0, known.forecast + seconds)
    return _with_evidence(
        known.kind,
        of,
        None if in_seconds else math.exp(known.candidate),
        seconds if in_seconds else None,
        known.evidence,
        applied=applied,
    )


def _link(link: LearnedLink) -> CorrectionInfo:
    return _with_evidence(
        LINK, link.between, link.factor, None, link.evidence, applied=link.evidence.helps
    )


def _with_evidence(
    kind: str,
    of: tuple[str, ...],
    factor: float | None,
    seconds: float | None,
    evidence: Evidence,
    *,
    applied: bool,
) -> CorrectionInfo:
    return {
        "kind": kind,
        "of": list(of),
        "factor": factor,
        "seconds": seconds,
        "applied": applied,
        "runs": evidence.runs,
        "first": _day(evidence.first),
        "last": _day(evidence.last),
        "tested": evidence.tested,
        "error_with": _error(kind, evidence.error_with),
        "error_without": _error(kind, evidence.error_without),
        "bound": KINDS[kind].bound,
        "unused": None if applied else _unused(evidence),
    }


def _unused(evidence: Evidence) -> str:
    """Return the reason why a correction with this evidence is not used."""
    if not evidence.tested:
        return "not tested by a later run"
    if not evidence.decided:
        return f"tested by {evidence.tested} of {MIN_TESTS} later runs"
    if evidence.helps:
        return f"fewer than {MIN_SETS} sets taught it"
    if evidence.error_with < evidence.error_without:
        return "worse in the newest run"
    return "not better than the model without it"


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """The learned state of one application, for display.

    Attributes
    ----------
    key
        The application.
    learned
        Its state.
    """

    key: LearnedKey
    learned: Learned

    @property
    def names(self) -> tuple[str, str]:
        """Names by which a user selects it: its name and its folder."""
        return self.key.application, self.key.folder

    @property
    def hosts(self) -> list[str]:
        """Its hosts, by name and by identity."""
        identities = self.learned.identities
        return list(dict.fromkeys([*map(host_name, identities), *identities]))

    def identities_of(self, name: str) -> list[str]:
        """Return the identities of its hosts with a name, or the identity itself."""
        identities = self.learned.identities
        return [identity for identity in identities if name in (identity, host_name(identity))]


def host_name(identity: str) -> str:
    """Return the name in a host's identity.

    Examples
    --------
    >>> host_name("ada@10.0.0.1#0,1")
    'ada'
    """
    return identity.partition("@")[0].partition("#")[0]


def applications() -> list[ApplicationState]:
    """Return the learned state of each application, by name."""
    return [ApplicationState(key, learned) for key, learned in documents()]


def named(name: str) -> list[ApplicationState]:
    """Return the applications of a name or folder; if none match, those with this host, reduced to its part.

    Raises
    ------
    UsageError
        Nothing is learned of this name.
    """
    known = applications()
    chosen = _of_name_or_folder(name, known)
    if chosen:
        return chosen
    chosen = [
        replace(state, learned=state.learned.of_hosts(identities))
        for state in known
        if (identities := state.identities_of(name))
    ]
    if chosen:
        return chosen
    words = [word for state in known for word in (*state.names, *state.hosts)]
    near = hat.nearest(name, words)
    hint = (
        f"did you mean '{near}'?"
        if near
        else "`apples calibrate --learned` lists the stored names"
    )
    raise UsageError(
        f"'{hat.printable(name)}': no learned state of this application, folder or host; {hint}",
        code="learned-unknown",
        value=name,
        known=sorted(set(words))[:MAX_LISTED],
    )


def _of_name_or_folder(name: str, known: Sequence[ApplicationState]) -> list[ApplicationState]:
    by_name = [state for state in known if state.key.application == name]
    if by_name or "\0" in name:
        return by_name
    folder = str(Path(name).resolve())
    return [state for state in known if state.key.folder == folder]


def forget_named(name: str, *, every: bool = False) -> list[str]:
    """Remove the applications of a name or folder; if none match, remove the host from all applications.

    Parameters
    ----------
    every
        Whether an application of this name is removed in each of several folders.

    Returns
    -------
    list[str]
        A line for each application that changed.

    Raises
    ------
    UsageError
        The name is unknown, or applications in several folders have it.
    """
    removed = _of_name_or_folder(name, applications())
    folders = sorted({state.key.folder for state in removed})
    if len(folders) > 1 and not every:
        more = f" and {len(folders) - MAX_LISTED} more" if len(folders) > MAX_LISTED else ""
        listed = ", ".join(hat.printable(folder) for folder in folders[:MAX_LISTED])
        raise UsageError(
            f"'{hat.printable(name)}' is learned in {len(folders)} folders: {listed}{more}; name a folder, "
            "or add --all",
            code="learned-ambiguous",
            value=name,
            folders=folders,
        )
    for state in removed:
        forget(state.key)
    if removed:
        return [_of(state) for state in removed]
    lines: list[str] = []
    for state in named(name):
        for identity in state.identities_of(name):
            forget_host(state.key, identity)
            lines.append(f"host {identity} of {_of(state)}")
    return lines


def _of(state: ApplicationState) -> str:
    version = f" {state.key.version}" if state.key.version else ""
    return f"{state.key.application}{version} in {state.key.folder}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _error(kind: str, error: float) -> float:
    """Return a mean error for display: seconds of a start, else relative."""
    return error if kind == START else math.expm1(min(error, MAX_LOG_ERROR))


def dearest(
    information: InformationPool, host: Host, others: Sequence[Host], run_seconds: float
) -> CorrectionInfo | None:
    """Return the correction in use that raises the cost of adding a host most; None if none exceeds `DEAR`.

    Parameters
    ----------
    run_seconds
        Execution seconds of a run on the others; a start is compared with them.
    """
    priced = [
        (_price(known, information, host, others, run_seconds), known)
        for known in described(information, [host, *others])
        if known["applied"]
    ]
    price, dearest_of_all = max(priced, key=lambda pair: pair[0], default=(1.0, None))
    return dearest_of_all if price > DEAR else None


def _price(
    known: CorrectionInfo,
    information: InformationPool,
    host: Host,
    others: Sequence[Host],
    run_seconds: float,
) -> float:
    """Return the factor by which a correction raises its term if the host joins the others; 1 if it does not.

    Share biases below 1 and other factors above 1 raise the cost of a host. A border wait is compared with the
    border that it is added to, a start with the whole run, and the straggler factor with that of the others
    alone.
    """
    factor, seconds = known["factor"] or 1.0, known["seconds"] or 0.0
    if known["kind"] == STRAGGLER_FACTOR:
        return _dearer_by_stragglers(known, information, host, others)
    if known["kind"] == START and known["of"][1] == host.name:
        before = start_seconds(information, others)
        listed = max(host.start_seconds or 0.0, before)
        return (run_seconds + max(seconds, before)) / (run_seconds + listed)
    if known["kind"] == LINK:
        between, names = set(known["of"]), {other.name for other in others}
        touches = not between.isdisjoint({host.name, host.site}) and (
            host.name not in between or not between.isdisjoint(names)
        )
    else:
        touches = known["of"] == [host.name]
    if not touches:
        return 1.0
    if known["kind"] == BORDER_WAIT:
        border = min(information.model.borders(host, others).tolist(), default=0.0)
        return border / (border - seconds) if border > seconds else math.inf
    return 1.0 / factor if known["kind"] == SHARE_BIAS else factor


def _dearer_by_stragglers(
    known: CorrectionInfo,
    information: InformationPool,
    host: Host,
    others: Sequence[Host],
) -> float:
    """Return the straggler factor with a host over that without it; 1 if `known` is another factor."""
    hosts, threads = [host, *others], information.threads
    factor_of = information.learned.straggler_factor_of
    with_it = factor_of(hosts, threads=threads)
    if known["factor"] != with_it or set(known["of"]) not in (
        set(),
        {each.name for each in hosts},
    ):
        return 1.0
    return with_it / factor_of(others, threads=threads)


def dear_words(known: CorrectionInfo | None) -> str:
    """Return a correction as the end of a reason, in parentheses; empty without one.

    Examples
    --------
    >>> link = {"kind": "link", "of": ["a", "b"], "factor": 2.1, "seconds": None, "applied": True, "runs": 3}
    >>> dear_words(link)
    ' (its link is learned: 2.1 times the forecast, 3 runs)'
    """
    if known is None:
        return ""
    label, runs = LABELS[known["kind"]], counted(known["runs"], "run")
    if known["seconds"] is not None:
        value = duration(known["seconds"]) + (" a border" if known["kind"] == BORDER_WAIT else "")
    else:
        against = "the forecast" if known["kind"] in (LINK, SHARE_BIAS) else "the model"
        value = f"{digits(known['factor'] or 1.0, 2)} times {against}"
    return f" ({label} is learned: {value}, {runs})"
