"""GPUs and network interfaces with their names in hwloc's XML, each counted once.

The system and each computing runtime give a device a name (``renderD128``, ``nvml0``, ``cuda0``) below its PCI
device. A partitioned GPU is several devices of one runtime below one PCI device, and an InfiniBand port is both
``ib0`` and a port of ``mlx5_0``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from apples.topology.parts import Device, DeviceKind

CONTAINERS = ("Bridge", "PCIDev")
DEVICES = (*CONTAINERS, "OSDev")
_COMPUTES = re.compile(r"(cuda|nvml|opencl|rsmi|ze)[0-9][0-9d]*")
"""Names from computing runtimes for GPUs; a display's ``card0`` and a part of a GPU (``ze0.1``) do not match."""
_GPU = re.compile(r"03[0-9a-f]{2} \[(10de|1002):")
"""PCI class and vendor of a GPU without a runtime's name; a board's own display does not match."""
_SIZES = ("CUDAGlobalMemorySize", "RSMIVRAMSize", "LevelZeroHBMSize", "OpenCLGlobalMemorySize")
"""Infos of a GPU's memory: in KiB, or in format 3 in the written unit."""
_SIZE = re.compile(r"([0-9]{1,18}) ?(|KiB|kB|MiB|GiB|B)")
_UNITS = {"": 2**10, "KiB": 2**10, "kB": 2**10, "MiB": 2**20, "GiB": 2**30, "B": 1}
_MODELS = ("GPUModel", "PCIDevice")
_NETWORK, _OPENFABRICS = "2", "3"
"""``osdev_type`` of formats 1 and 2. Format 3 has other numbers; there the infos decide."""
_PORT = re.compile(r"Port([0-9]{1,3})(State|LID|GID)")


def devices_below(elements: Sequence[Element], cpus: int, numbered: bool) -> Iterator[Device]:
    """Yield the devices among the elements beside the parts of a machine: bridges, PCI and system devices.

    Parameters
    ----------
    cpus
        Mask of the CPUs to which the devices are local.
    numbered
        Whether ``osdev_type`` has the numbers of formats 1 and 2.
    """
    systems = [element for element in elements if element.get("type") == "OSDev"]
    yield from _devices_of(None, systems, cpus, numbered)
    for element in elements:
        if element.get("type") in CONTAINERS:
            inside = element.findall("object")
            if element.get("type") == "PCIDev":
                names = [child for child in inside if child.get("type") == "OSDev"]
                yield from _devices_of(element, names, cpus, numbered)
                inside = [child for child in inside if child.get("type") != "OSDev"]
            yield from devices_below(inside, cpus, numbered)


def _devices_of(
    pci: Element | None, systems: Sequence[Element], cpus: int, numbered: bool
) -> Iterator[Device]:
    """Yield the devices of one PCI device, or of an element without a PCI device."""
    systems = sorted(systems, key=_name)
    runtimes: dict[str, list[Element]] = {}
    for element in systems:
        if found := _COMPUTES.fullmatch(_name(element)):
            runtimes.setdefault(found[1], []).append(element)
    yield from _gpus(pci, list(runtimes.values()), cpus)
    networks = [e for e in systems if _is(e, "Address", _NETWORK, numbered)]
    fabrics = [e for e in systems if _is(e, "NodeGUID", _OPENFABRICS, numbered)]
    yield from _nics(pci, [e for e in networks if e not in fabrics], fabrics, cpus)


def _gpus(pci: Element | None, runtimes: Sequence[list[Element]], cpus: int) -> Iterator[Device]:
    """Yield the GPUs of the runtime that names most."""
    if not runtimes:
        if pci is not None and _GPU.match(pci.get("pci_type", "")):
            yield _gpu(pci.get("pci_busid", "")[:64], [pci], (), cpus)
        return
    most = max(runtimes, key=len)  # the first of equals: cuda before nvml before opencl
    for number, element in enumerate(most):
        same = [each[number] for each in runtimes if each is not most and len(each) == len(most)]
        elements = [element, *same, *([] if pci is None else [pci])]
        yield _gpu(_name(element), elements, tuple(map(_name, same)), cpus)


def _gpu(name: str, elements: Sequence[Element], aliases: tuple[str, ...], cpus: int) -> Device:
    pairs = [pair for element in elements for pair in infos(element).items()]
    size = next((value for key, value in pairs if key in _SIZES), "")
    model = next((value for key, value in pairs if key in _MODELS), "")[:80]
    return Device(name, DeviceKind.GPU, cpus, _bytes(size), model, aliases)


def _nics(
    pci: Element | None, networks: Sequence[Element], fabrics: Sequence[Element], cpus: int
) -> Iterator[Device]:
    """Yield the ports: the network interfaces, each with its fabric's name, or the ports of the fabrics."""
    model = "" if pci is None else infos(pci).get("PCIDevice", "")[:80]
    ports = [_name(fabric) for fabric in fabrics for _ in range(_ports(fabric))]
    # A partition of an InfiniBand network (ib0.8001) is a second interface of one port.
    own = [each for each in networks if "." not in _name(each)] or networks
    names = [_name(each) for each in own]
    for number in range(max(len(ports), len(names))):
        port = ports[number] if number < len(ports) else ""
        if number < len(names):
            yield Device(names[number], DeviceKind.NIC, cpus, None, model, (port,) * bool(port))
        else:
            yield Device(port, DeviceKind.NIC, cpus, None, model)


def _ports(fabric: Element) -> int:
    return len({found[1] for key in infos(fabric) if (found := _PORT.match(key))}) or 1


def _is(element: Element, info: str, kind: str, numbered: bool) -> bool:
    return (numbered and element.get("osdev_type") == kind) or info in infos(element)


def _name(element: Element) -> str:
    return element.get("name", "")[:64]


def infos(element: Element) -> Mapping[str, str]:
    """Return the names and values of the ``info`` elements inside an element."""
    return {pair.get("name", ""): pair.get("value", "") for pair in element.findall("info")}


def _bytes(text: str) -> int | None:
    """Return an amount in bytes; None if it is unreadable, because the machine is usable without it."""
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) * _UNITS[found[2]] if found else None
