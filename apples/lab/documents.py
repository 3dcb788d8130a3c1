"""Types of the JSON documents of a laboratory."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class LabMachine(TypedDict):
    """An emulated machine."""

    name: str
    """Name of the machine."""
    address: str
    """Its address in the lab."""
    site: str
    """Its site."""
    cpu: float | None
    """CPUs' worth of time it may use; null: no limit."""
    cpus: list[int]
    """CPUs that it may use."""
    memory: float | None
    """Bytes that it may use; null: no limit."""
    pid: int
    """Process id of its first process."""
    up: bool
    """Whether that process runs."""


class LabStatusDocument(TypedDict):
    """``apples lab up | hosts | exec | shape | down --json`` print this document, each with its own keys."""

    schema: Literal["apples.lab/1"]
    name: NotRequired[str]
    """Name of the lab."""
    hosts: NotRequired[str]
    """Path of the written host list."""
    ssh_config: NotRequired[str | None]
    """Path of the ssh configuration that reaches the machines; null: no sshd."""
    interface: NotRequired[str]
    """Network interface of this machine in the lab."""
    address: NotRequired[str]
    """Address of this machine in the lab."""
    machines: NotRequired[list[LabMachine]]
    """`apples lab hosts`: the machines."""
    host: NotRequired[str]
    """`apples lab exec`: machine on which the command ran."""
    exit_code: NotRequired[int]
    """`apples lab exec`: exit code of the command."""
    stdout: NotRequired[str]
    """`apples lab exec`: standard output of the command."""
    stderr: NotRequired[str]
    """`apples lab exec`: standard error of the command."""
    site: NotRequired[str]
    """`apples lab shape`: site of the link."""
    bandwidth: NotRequired[float]
    """`apples lab shape`: new rate in bytes a second."""
    down: NotRequired[list[str]]
    """`apples lab down`: names of the removed labs."""
