#!/usr/bin/env python3
"""An emulated machine of its own, for what only a kernel of its own can show: systemd, cgroup v2, NUMA.

Processors are emulated (no KVM is needed), the kernel and the system are Debian's as they are. The
machine has two packages, two NUMA nodes and four CPUs, no network, and a disk that forgets: each run
begins from the image as it was built.

    python packaging/vm/emulated.py build
    python packaging/vm/emulated.py check [--cuts N]
    python packaging/vm/emulated.py run FOLDER COMMAND [ARGUMENT ..]

`check` tries in it what `checks.py` claims, then cuts its power N times at random moments of writing, and looks
each time whether all that was acknowledged is on the disk that was kept; the record of it is build/vm/check.json.
`run` boots the machine with a copy of FOLDER as its /job, runs the command there as root and passes its
output and exit status on; what it leaves in /job/out comes back to FOLDER/out. Needs the Debian packages
qemu-system-x86, mmdebstrap, arch-test and e2fsprogs, and root for `build` (files of other owners). A boot
takes half a minute on idle CPUs. Exit status 4: the machine could not be built or did not answer in time; 77:
skipped, with the reason. An image that is there is kept while it is
made of what this file says.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "build" / "vm"
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
}
PACKAGES = (
    "systemd systemd-sysv dbus linux-image-cloud-amd64 python3 python3-numpy procps util-linux"
    " iproute2 openssh-server"
)
"""Of the image; what a job needs beside them it brings in its folder."""
SKIPPED = 77
RESULTS_MIB = 64
"""Room for what a job leaves in its folder ``out``."""

JOB = """\
[Unit]
Description=The job of this machine
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mkdir /job; mount /dev/vdb /job; cd /job; sh .command >/dev/ttyS1 2>&1; \\
    code=$?; [ -d out ] && tar cf /dev/vdc out; echo; echo "exit $code"; sync; systemctl poweroff'
StandardOutput=file:/dev/ttyS2
[Install]
WantedBy=multi-user.target
"""


def main() -> int:
    """Build or run, as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build")
    check_parser = verbs.add_parser("check")
    check_parser.add_argument("--cuts", type=int, default=5, help="of power")
    run_parser = verbs.add_parser("run")
    run_parser.add_argument("--seconds", type=float, default=600.0, help="give up after so many")
    run_parser.add_argument("folder", type=Path)
    run_parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was begun is cleared up
    if reason := lacking(given.verb == "build"):
        print(f"emulated machine: skipped: {reason}", file=sys.stderr)
        return SKIPPED
    if given.verb == "build":
        return 0 if _is_current() else build()
    if given.verb == "check":
        return check(given.cuts)
    if not given.folder.is_dir() or not given.command:
        parser.error("run needs a folder and a command")
    return run(given.folder, given.command, given.seconds)


def lacking(building: bool) -> str:
    """Return why there can be no machine here; empty where there can."""
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        return f"not installed: {' '.join(missing)}"
    if _is_current():
        return ""
    if not building:
        return "there is no image of these packages; first: make vm"
    return "" if os.geteuid() == 0 else "the image is made by root"


def _is_current() -> bool:
    """Whether there is an image, made of what this file says."""
    made = IMAGE / "made"
    return (IMAGE / "root.img").exists() and made.exists() and made.read_text() == PACKAGES + JOB


def build() -> int:
    """Make the image: kernel, initial RAM disk and root file system. Nothing is mounted."""
    IMAGE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=IMAGE) as folder:
        root = Path(folder) / "root"
        include = ",".join(PACKAGES.split())
        tool = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={include}"]
        if subprocess.run(
            [*tool, "--format=directory", "bookworm", str(root)], check=False
        ).returncode:
            print("emulated machine: the system could not be put together", file=sys.stderr)
            return 4
        units = root / "etc/systemd/system"
        (units / "job.service").write_text(JOB)
        wanted = units / "multi-user.target.wants"
        wanted.mkdir(exist_ok=True)
        (wanted / "job.service").symlink_to("../job.service")
        # No log-in where the job writes, and none over a network but what the lab starts.
        for masked in ("serial-getty@ttyS1", "serial-getty@ttyS2", "ssh"):
            (units / f"{masked}.service").symlink_to("/dev/null")
        (root / "etc/hostname").write_text("emulated\n")
        (root / "etc/fstab").write_text("")
        for name, kept in (("vmlinuz-*", "kernel"), ("initrd.img-*", "initrd")):
            shutil.copy(next((root / "boot").glob(name)), IMAGE / kept)
        disk(IMAGE / "root.part", root, 2048)
        (IMAGE / "root.part").replace(IMAGE / "root.img")
        (IMAGE / "made").write_text(PACKAGES + JOB)
    return 0


def run(folder: Path, command: list[str], seconds: float) -> int:
    """Boot, run the command in a copy of `folder`, and return its exit status."""
    with tempfile.TemporaryDirectory(dir=IMAGE) as scratch:
        machine = prepared(folder, command, Path(scratch))
        try:
            subprocess.run(machine, stdin=subprocess.DEVNULL, timeout=seconds, check=True)
            words = (Path(scratch) / "ended").read_text().split()
            status = int(words[words.index("exit") + 1])
        except (subprocess.SubprocessError, ValueError, IndexError, OSError) as error:
            console = Path(scratch) / "console"
            last = console.read_text(errors="replace")[-2000:] if console.exists() else ""
            print(f"{last}\nemulated machine: no answer: {error}", file=sys.stderr)
            return 4
        results = Path(scratch) / "results"
        if any(results.read_bytes()[:1024]):
            with tarfile.open(results) as archive:
                archive.extractall(folder, filter="data")
        return status


def prepared(
    folder: Path, command: list[str], scratch: Path, kept: Path | None = None
) -> list[str]:
    """Return the command line of a machine with a copy of `folder`, and with a disk that is `kept`."""
    copy, results = scratch / "job", scratch / "results"
    shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns("out"))
    (copy / ".command").write_text(shlex.join(command) + "\n")
    size = sum(each.lstat().st_size for each in copy.rglob("*")) >> 20
    disk(scratch / "job.img", copy, size + size // 4 + RESULTS_MIB)
    results.write_bytes(b"")
    os.truncate(results, RESULTS_MIB << 20)
    drives = [(scratch / "job.img", ""), (results, ""), *([] if kept is None else [(kept, "")])]
    return emulator("emulated", [*TWO_NODES, "-net", "none"], drives, scratch)


CPU = "max,avx=off,avx2=off"
"""Without wide vectors: gathers (VPGATHERDD) of qemu 7.2 fault now and then, and NumPy dies of it."""
TWO_NODES = [
    *("-m", "2048", "-smp", "4,sockets=2,cores=2"),
    *("-object", "memory-backend-ram,id=m0,size=1024M"),
    *("-object", "memory-backend-ram,id=m1,size=1024M"),
    *("-numa", "node,nodeid=0,memdev=m0,cpus=0-1"),
    *("-numa", "node,nodeid=1,memdev=m1,cpus=2-3", "-numa", "dist,src=0,dst=1,val=21"),
]
"""Memory and CPUs of a machine with two packages, each with its memory."""


def emulator(
    name: str, shape: list[str], drives: list[tuple[Path, str]], scratch: Path
) -> list[str]:
    """Return the command line of a machine of the image, with its drives in order behind the image's."""
    options = f"root=/dev/vda rw quiet console=ttyS0 no_timer_check systemd.hostname={name}"
    words = [
        *(
            "setpriv",
            "--pdeathsig",
            "KILL",
        ),  # whoever kills this program, its machine ends with it
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", CPU, *shape),
        *("-no-reboot", "-display", "none", "-monitor", "none"),
        *("-kernel", str(IMAGE / "kernel"), "-initrd", str(IMAGE / "initrd")),
        *("-append", f"{options} systemd.unified_cgroup_hierarchy=1"),
        *("-serial", f"file:{scratch}/console"),
        *("-serial", "stdio", "-serial", f"file:{scratch}/ended"),
    ]
    for path, more in [(IMAGE / "root.img", ",snapshot=on"), *drives]:
        words += ["-drive", f"file={path},format=raw,if=virtio{more}"]
    return words


# ------------------------------------------------------------------ checks
HEAVY = {"scipy", "pulp", "highspy", "mpi4py", "mpich", "numba", "backports.zstd"}
"""What apples needs for other things than its daemons, and what they need in turn stays out with them."""
CHECKS = Path(__file__).with_name("checks.py")
CHECK_SECONDS = 1800.0


def check(cuts: int) -> int:
    """Try what is claimed, cut the power, and write down what came of it."""
    begun = time.time()
    with tempfile.TemporaryDirectory(dir=IMAGE) as scratch:
        folder = Path(scratch) / "job"
        site(folder / "site", folder / "site", ["apples", "fastapi", "uvicorn"])
        for file in (CHECKS, ROOT / "tests/bad_jobs.py", *(ROOT / "packaging").glob("*.service")):
            shutil.copy(file, folder)
        status = run(folder, ["sh", "-c", f"mkdir out; {INSIDE} | tee out/results"], CHECK_SECONDS)
        lines = (folder / "out/results").read_text().splitlines() if status != 4 else []
        results = [json.loads(line) for line in lines]
        if cuts:
            results.append(tried(SURVIVES, lambda: power_cuts(folder, cuts)))
            print(json.dumps(results[-1]), flush=True)
    return record("check", begun, results)


SURVIVES = "What the topology daemon and the weather service acknowledged survives power cuts"


def tried(name: str, claim: Callable[[], str]) -> dict[str, Any]:
    """Try a claim, and return the line that says what came of it."""
    begin = time.monotonic()
    try:
        said, kept = claim(), True
    except Exception as error:  # noqa: BLE001 - a claim that is not kept is a line, and the next is tried
        said, kept = f"{type(error).__name__}: {error}", False
    return {"claim": name, "kept": kept, "said": said, "seconds": time.monotonic() - begin}


def record(part: str, begun: float, results: list[dict[str, Any]]) -> int:
    """Write down what came of a part, and print it as the guarantees show it; return the exit status."""
    kept = bool(results) and all(one["kept"] for one in results)
    seconds = time.time() - begun
    found = {"begun": time.strftime("%FT%TZ", time.gmtime(begun)), "seconds": round(seconds)}
    found |= {"load": os.getloadavg(), "kept": kept, "claims": results}
    (IMAGE / f"{part}.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"\n{part}: {seconds / 60:.0f} minutes, load {' '.join(map(str, os.getloadavg()))}")
    print("| claim | kept | found | seconds |\n|---|---|---|---|")
    for one in results:
        cells = one["claim"], "yes" if one["kept"] else "no", one["said"], f"{one['seconds']:.0f}"
        print(f"| {' | '.join(cells)} |")
    return 0 if kept else 1


INSIDE = "env PYTHONPATH=/job/site:/job /usr/bin/python3 checks.py"
"""How the checks are started in the machine."""


def power_cuts(folder: Path, count: int) -> str:
    """Kill the machine `count` times while it writes, start it again on the same disk, and compare."""
    chance = random.Random(count)  # noqa: S311 - moments, no secrets
    acknowledged, told = {"ledger": 0, "weather": 0}, []
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(dir=IMAGE) as scratch:
        disk = Path(scratch) / "kept.img"
        disk.write_bytes(b"")
        os.truncate(disk, 64 << 20)
        for cut in range(count + 1):
            here = Path(scratch) / f"boot{cut}"
            here.mkdir()
            machine = prepared(folder, [*INSIDE.split(), "recover"], here, disk)
            found, after = _until_cut(machine, acknowledged, chance.randint(20, 400))
            if found is None:
                wrong.append(f"boot {cut}: no answer")
                break
            ledger, weather, problems, broken = found
            if ledger < after["ledger"] or weather < after["weather"] or broken != "[]":
                wrong.append(f"boot {cut}: acknowledged {after}, found {found}")
            told.append((after["ledger"], ledger, after["weather"], weather, problems))
            shutil.rmtree(here)
    said = f"{count} cuts; acknowledged and found, ledger and weather, problems: {told}"
    if wrong:
        raise AssertionError(f"{wrong}; {said}")
    return said


def _until_cut(
    machine: list[str], acknowledged: dict[str, int], lines: int
) -> tuple[tuple[int, int, int, str] | None, dict[str, int]]:
    """Boot, hear what was found, kill the machine after so many lines; return also what was acknowledged."""
    before, found = dict(acknowledged), None
    with subprocess.Popen(
        machine, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        timer = threading.Timer(CHECK_SECONDS, process.kill)
        timer.start()
        if process.stdout is None:
            raise RuntimeError("no output")
        try:
            for line in process.stdout:
                words = line.split(maxsplit=4)
                if words[:1] == ["found"]:
                    found = int(words[1]), int(words[2]), int(words[3]), words[4].strip()
                elif found and len(words) == 2 and words[0] in acknowledged and words[1].isdigit():
                    acknowledged[words[0]] = int(words[1])
                    lines -= 1
                if not lines:
                    break
        finally:
            process.kill()
            timer.cancel()
    return found, before


def site(target: Path, within: Path, names: Iterable[str]) -> None:
    """Copy our packages, and those named with what they need, less what is heavy, out of this environment.

    Files that lie beside `target` here (commands, libraries) go beside it there, as far as that is `within`.
    """
    for package in ("apples", "nws", "hat", "blueprints"):
        shutil.copytree(ROOT / package, target / package)
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        found = metadata.distribution(name)
        for need in found.requires or ():
            word = re.match(r"[A-Za-z0-9._-]+", need)
            if word and "extra ==" not in need and word[0].lower() not in HEAVY:
                with contextlib.suppress(metadata.PackageNotFoundError):  # of another Python
                    waiting.append(metadata.distribution(word[0]).metadata["Name"])
        for file in found.files or ():
            place = Path(os.path.normpath(target / file))
            if place.is_relative_to(within) and (name != "apples" or ".dist-info" in str(file)):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file.locate(), place)


def disk(image: Path, content: Path, mib: int) -> None:
    """Write an ext4 image that holds a folder."""
    image.unlink(missing_ok=True)
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-d", str(content), str(image), f"{mib}M"]
    subprocess.run(make, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    sys.exit(main())
