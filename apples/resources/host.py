"""`Host`: one machine, or a part of one, as the application uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

import hat
from apples.ui.units import in_one_line

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
ADDRESS_PATTERN = r"^[A-Za-z0-9:][A-Za-z0-9._:%-]*$"
TEXT_PATTERN = r"^([^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*)?$"
SOCKET_PATTERN = r"^(/[^\x00-\x1f\x7f]*)?$"
USER_PATTERN = r"^([A-Za-z0-9_][A-Za-z0-9._@+-]*)?$"
PROGRAM_PATTERN = r"^([^\x00-\x1f\x7f'\"`$\\!-][^\x00-\x1f\x7f'\"`$\\!]*)?$"
"""A path that is safe inside quotes in any shell."""
ALLOCATION_PATTERN = r"^[0-9]{0,18}$"


def _below_home(path: object) -> object:
    """Return ``$HOME/..`` as ``~/..``, the form in which a path below the login's home is kept."""
    return re.sub(r"^\$(HOME|\{HOME\})/", "~/", path) if isinstance(path, str) else path


def _unit(unit: str) -> Any:
    """Return an annotation that adds a unit to the schema of a field."""
    return Field(json_schema_extra={"unit": unit})


def _socket_path(value: object) -> object:
    """Reject an address of a network, because a daemon listens only on its own host."""
    if isinstance(value, str) and value and not value.startswith("/"):
        raise PydanticCustomError(
            "value_error",
            "must be the path of a socket on the host (is {address}); a daemon of another host is asked over ssh",
            {"address": repr(value[:60])},
        )
    return value


def _each_once(cpus: tuple[int, ...]) -> tuple[int, ...]:
    """Raise an error for a CPU that is named twice, because it would count as two."""
    if len(set(cpus)) < len(cpus):
        raise PydanticCustomError("value_error", "must name each CPU once")
    return cpus


Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=253)]
Address = Annotated[str, Field(pattern=ADDRESS_PATTERN, max_length=253)]
Text = Annotated[str, Field(pattern=TEXT_PATTERN, max_length=4096)]
LEAST, MOST = 1e-15, 1e15
"""Range of positive numbers in a host list, so that all computed values stay finite."""
Socket = Annotated[
    str, BeforeValidator(_socket_path), Field(pattern=SOCKET_PATTERN, max_length=4096)
]
User = Annotated[str, Field(pattern=USER_PATTERN, max_length=253)]
Program = Annotated[
    str, BeforeValidator(_below_home), Field(pattern=PROGRAM_PATTERN, max_length=4096)
]
PositiveNumber = Annotated[float, Strict(), Field(gt=0, ge=LEAST, le=MOST, allow_inf_nan=False)]
AtLeastZero = Annotated[float, Strict(), Field(ge=0, le=MOST, allow_inf_nan=False)]
Share = Annotated[float, Strict(), Field(gt=0, ge=LEAST, le=1, allow_inf_nan=False)]
Memory = Annotated[hat.Size, Field(ge=0, lt=2**63)]
Cpus = Annotated[
    tuple[Annotated[int, Strict(), Field(ge=0, lt=2**16)], ...], AfterValidator(_each_once)
]


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid", defer_build=True))
class Host:
    """One host of a host list.

    Attributes
    ----------
    name
        Name in plans and reports.
    address
        Network address; empty: the name.
    site
        The site of its network.
    slots
        Ranks that share its strip equally.
    cpus
        CPUs of this machine that form the host (local actuator); empty: any.
    seconds_per_point
        Dedicated processor seconds that a slot needs for one grid point; None: not measured.
    cpu
        Static share of a CPU that one of our processes gets, in (0, 1].
    free_memory
        Bytes; None: not given.
    platform
        Matched against the platforms of an implementation, such as ``x86_64``.
    cost_per_second
        Cost of a second of the whole host, in the user's currency.
    start_seconds
        From a launch until the program is ready there; measured excess of earlier runs is added. None: the
        typical time elsewhere, 0 if unknown.
    queue_seconds
        Expected wait in a batch queue; None: the host is time-shared and available now.
    owner_first
        Whether a scheduler that migrates jobs should leave the host at once when others use its processors.
    topologyd
        Path of the socket of the topology daemon that gives its CPUs to jobs that share it; empty: no daemon.
    user, python, directory
        Login, interpreter and working directory on the host; empty: ssh's default, the path of this interpreter,
        the home directory.
    allocation
        Number of the Slurm job that reaches it by job steps; empty: it is reached by ssh.

    Examples
    --------
    >>> Host("ada", seconds_per_point=9e-9, free_memory="2 GiB").free_memory
    2147483648
    """

    name: Annotated[
        Name, Field(description="Name of the host in plans and reports.", examples=["ada"])
    ]
    address: Annotated[
        Address | None,
        Field(
            description="Network address, or a name that ssh knows; the name if not given.",
            examples=["10.0.0.1"],
        ),
    ] = None
    site: Annotated[
        Name,
        Field(description="Site of the host; hosts of a site share a network.", examples=["lab"]),
    ] = "local"
    slots: Annotated[
        int,
        Strict(),
        Field(ge=1, le=4096, description="Ranks that share its strip equally.", examples=[4]),
        _unit("ranks"),
    ] = 1
    cpus: Annotated[
        Cpus,
        Field(
            description="CPUs of this machine that the host stands for; empty: any.",
            examples=[[0, 1]],
        ),
    ] = ()
    seconds_per_point: Annotated[
        PositiveNumber | None,
        Field(
            description="Dedicated processor seconds of one slot for one grid point.",
            examples=[4e-9],
        ),
        _unit("s"),
    ] = None
    cpu: Annotated[
        Share,
        Field(
            description="Share of a CPU that one process of a job gets, where no forecast exists.",
            examples=[0.5],
        ),
        _unit("share, 0 to 1"),
    ] = 1.0
    free_memory: Annotated[
        Memory | None,
        Field(
            description="Memory that is free for the application; unlimited if not given.",
            examples=["2 GiB"],
        ),
        _unit("bytes"),
    ] = None
    platform: Annotated[
        Text,
        Field(
            description="Platform, compared with the platforms of an implementation.",
            examples=["x86_64"],
        ),
    ] = ""
    cost_per_second: Annotated[
        AtLeastZero,
        Field(description="Cost of one second of the whole host.", examples=[0.01]),
        _unit("currency per s"),
    ] = 0.0
    start_seconds: Annotated[
        AtLeastZero | None,
        Field(
            description="Time from a launch until the program is ready; taken from earlier runs if not given.",
            examples=[2.5],
        ),
        _unit("s"),
    ] = None
    queue_seconds: Annotated[
        AtLeastZero | None,
        Field(
            description="Expected wait in a batch queue; a time-shared host has none.",
            examples=[600],
        ),
        _unit("s"),
    ] = None
    owner_first: Annotated[
        bool,
        Strict(),
        Field(
            description="Whether a scheduler that migrates jobs leaves the host once others want its processors."
        ),
    ] = False
    topologyd: Annotated[
        Socket,
        Field(
            description="Socket of the topology daemon that assigns its CPUs; empty: no daemon.",
            examples=["/run/topologyd.sock"],
        ),
    ] = ""
    user: Annotated[
        User,
        Field(
            description="Login on the host; empty: as the ssh configuration defines it.",
            examples=["alice"],
        ),
    ] = ""
    python: Annotated[
        Program,
        Field(
            description="Path of its Python interpreter, where ~/ is the login's home there; empty: the same path "
            "as here.",
            examples=["/usr/bin/python3", "~/env/bin/python"],
        ),
    ] = ""
    directory: Annotated[
        Text,
        Field(
            description="Working directory on the host; empty: the home directory.",
            examples=["~/runs"],
        ),
    ] = ""
    allocation: Annotated[
        str,
        Field(
            pattern=ALLOCATION_PATTERN,
            description="Number of the Slurm job that reaches the host by its steps; empty: ssh reaches it.",
            examples=["4711"],
        ),
    ] = ""

    def __repr__(self) -> str:
        """Return the name, and the fields with other than default values."""
        words = [
            f"{known.name} {value}"
            for known in fields(self)[1:]
            if (value := getattr(self, known.name)) != known.default
        ]
        return in_one_line(self, ", ".join([self.name, *words]))

    @property
    def reached_at(self) -> str:
        """The address, or the name if it has no address."""
        return self.address or self.name

    @property
    def identity(self) -> str:
        """The key of stored measurements of a host: name, address and CPUs, so that host lists do not mix.

        Examples
        --------
        >>> Host("ada").identity, Host("ada", address="10.0.0.1", cpus=(0, 1)).identity
        ('ada', 'ada@10.0.0.1#0,1')
        """
        address = f"@{self.address}" if self.address else ""
        cpus = f"#{','.join(map(str, self.cpus))}" if self.cpus else ""
        return f"{self.name}{address}{cpus}"


ResourceSet = tuple[Host, ...]
"""Hosts in strip order: each is a neighbour of the previous and the next host."""


def names(resources: Iterable[Host]) -> tuple[str, ...]:
    """Return the hosts' names in their order."""
    return tuple(host.name for host in resources)
