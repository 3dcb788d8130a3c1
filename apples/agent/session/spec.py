"""`PlanSpec` and `RunSpec`: requests to plan or to run.

Standard library only, so that a job's supervisor, the command line and a list of jobs can read them without the
modules for planning.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from apples.agent.documents import LEARNED_WEATHERS
from apples.errors import UsageError

if TYPE_CHECKING:
    from apples.agent.documents import Asked
    from apples.agent.selector import Filter, HostFilter

BY_NAME = (
    "hosts",
    "template",
    "user",
    "blueprint",
    "weather",
    "planner",
    "distance",
    "model",
    "messages",
)
BY_NAME_OF_RUN = (*BY_NAME, "actuator", "output", "verify")
"""Fields of `PlanSpec` and `RunSpec` with an option of the same name."""
VERIFY = ("auto", "full", "sample", "none")
"""Legal values of ``--verify``."""


def asked_for(word: str | bool) -> Asked:
    """Return the requested verification, one of `VERIFY`; True is ``auto``, False is ``none``.

    Raises
    ------
    UsageError
        Unknown word. Permanent.

    Examples
    --------
    >>> asked_for(True), asked_for("sample")
    ('auto', 'sample')
    """
    if isinstance(word, bool):
        return "auto" if word else "none"
    if word not in VERIFY:
        raise UsageError(
            f"--verify '{word}': unknown; known: full, sample, none",
            code="value-unknown",
            option="--verify",
            value=word,
            known=["full", "sample", "none"],
        )
    return cast("Asked", word)


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """Request of one decision for one application: its hosts, and the rows of each.

    Attributes
    ----------
    hosts, template, user
        Paths of the host list, the application template and the user specifications. `user` None: no
        constraints or preferences.
    settings
        Parameters of the template to set, such as ``{"grid": 2000}``.
    blueprint, planner, distance, model
        A name, ``module:name``, ``file.py:name``, or the callable itself; None: the preference in the user
        specifications, else the default.
    host_filters, filters
        Functions of your own that refuse a host, or a schedule, by returning a `Rejection`; they run after the
        built-in filters.
    weather
        ``live``, ``remembered``, ``static``, or a recorded weather file.
    learned
        Whether a static or recorded weather also uses the learned state (measured speeds and corrections). A
        live or remembered weather always does.
    fresh
        Whether a live weather measures every host and link, even if remembered or irrelevant to the plan.
    on
        Hosts of the list, chosen in advance: the plan uses no others. Empty: any. A job may later be resized to
        others.
    silent
        Hosts of the list that are known not to answer: they are not checked, and no plan uses them.
    messages
        Document of a run (``apples.run/1``); its message counts decide which hosts become neighbours. None: not
        used.
    contents
        Texts that replace the files ``template`` and ``user``, by these names. A queued job carries the texts
        of its submission. The folder of the template stays the folder of its program.
    """

    hosts: str | Path = "hosts.toml"
    template: str | Path = "template.toml"
    user: str | Path | None = "user.toml"
    settings: Mapping[str, str | float] = field(default_factory=dict)
    blueprint: str | Callable[..., Any] | None = None
    weather: str = "live"
    planner: str | Callable[..., Any] | None = None
    distance: str | Callable[..., Any] | None = None
    model: str | Callable[..., Any] | None = None
    host_filters: tuple[HostFilter, ...] = field(default=(), kw_only=True)
    filters: tuple[Filter, ...] = field(default=(), kw_only=True)
    learned: bool = field(default=False, kw_only=True)
    fresh: bool = field(default=False, kw_only=True)
    on: tuple[str, ...] = field(default=(), kw_only=True)
    silent: tuple[str, ...] = field(default=(), kw_only=True)
    messages: Path | None = field(default=None, kw_only=True)
    contents: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def command(self) -> str:
        """The command of this run: ``apples run`` with options; ``apples.run(spec)`` if it has functions."""
        own = (self.blueprint, self.planner, self.distance, self.model)
        if self.host_filters or self.filters or any(map(callable, own)):
            return "apples.run(spec)"
        return shlex.join(["apples", "run", *self._options()])

    def _options(self) -> list[str]:
        plain = type(self)()
        words = []
        for name in self._by_name():
            value = getattr(self, name)
            value = asked_for(value) if name == "verify" else value
            if value is not None and value != getattr(plain, name):
                words += [f"--{name}", str(value)]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return words + [f"--{name}" for name in ("learned", "fresh") if getattr(self, name)]

    def _by_name(self) -> tuple[str, ...]:
        return BY_NAME

    @property
    def uses_learned(self) -> bool:
        """Whether the plan uses the learned state."""
        return self.learned or self.weather in LEARNED_WEATHERS


@dataclass(frozen=True, slots=True)
class RunSpec(PlanSpec):
    """Request of one run: a decision, and settings for its start, its verification and its result.

    Attributes
    ----------
    actuator
        ``local``, ``ssh`` or ``slurm``; None: ssh if the host list has other machines, else local.
    slurm
        Options for the site's Slurm, such as ``{"partition": "short"}``.
    output
        Folder for the result.
    verify
        Comparison of the result with that of a sequential run: ``full``, ``sample``, ``none`` or ``auto``.
        ``auto``: in full if that is short compared with the run, else a sample. True is ``auto``, False is
        ``none``.
    learn
        Whether the next prediction learns from this run; None: only if its plan used the learned state.
    warm, commit_seconds
        For a resizable job: hosts on which a process group may wait for a growth, and the seconds between two
        committed states. 0: no commits; None: commits only in memory, as often as they cost little.
    count_messages
        Whether to count the messages between its ranks.
    calibrate
        Whether to measure hosts of the plan first, if the application was never measured there at this size.
        Only under live weather, as other plans ignore measured speeds.
    """

    actuator: str | None = None
    slurm: Mapping[str, str] = field(default_factory=dict)
    output: Path | None = None
    verify: str | bool = "auto"
    learn: bool | None = None
    warm: tuple[str, ...] = ()
    commit_seconds: float | None = None
    count_messages: bool = False
    calibrate: bool = field(default=True, kw_only=True)

    def _options(self) -> list[str]:
        words = PlanSpec._options(self)  # no super(): the class is created twice because of slots
        for name, value in self.slurm.items():
            words += ["--slurm", f"{name}={value}"]
        words += ["--warm", ",".join(self.warm)] if self.warm else []
        words += [] if self.commit_seconds is None else ["--commit", str(self.commit_seconds)]
        words += ["--count-messages"] if self.count_messages else []
        return words if self.calibrate else [*words, "--no-calibrate"]

    def _by_name(self) -> tuple[str, ...]:
        return BY_NAME_OF_RUN

    @property
    def learns(self) -> bool:
        """Whether the next prediction learns from this run. Only a plan with the learned state can correct it."""
        return self.uses_learned if self.learn is None else self.learn


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Files and identifiers by which a supervised job is controlled.

    Attributes
    ----------
    id
        The job's name.
    folder
        Folder with the job's secret; the job announces its control port there.
    commits
        Folder with its committed states.
    attempt, epoch
        Number of starts, including this start, and the last epoch of its host map before. From the second start
        on, the job begins with its last commit.
    scheduled
        Whether a scheduler chooses its hosts.
    topologyd
        Host -> socket of the topology daemon that allocated CPUs to the job there, under its id.
    """

    id: str
    folder: Path
    commits: Path
    attempt: int = 1
    epoch: int = 0
    scheduled: bool = False
    topologyd: Mapping[str, str] = field(default_factory=dict)
