#!/usr/bin/env python3
"""An emulated machine of its own, for what only a kernel of its own can show: systemd, cgroup v2, NUMA.

Processors are emulated (no KVM is needed), the kernel and the system are Debian's as they are. The
machine has two packages, two NUMA nodes and four CPUs, no network, and a disk that forgets: each run
begins from the image as it was built.

    python packaging/vm/emulated.py build
    python packaging/vm/emulated.py run FOLDER COMMAND [ARGUMENT ..]

`run` boots the machine with a copy of FOLDER as its /job, runs the command there as root and passes its
output and exit status on; what it leaves in /job/out comes back to FOLDER/out. Needs the Debian packages
qemu-system-x86, mmdebstrap, arch-test and e2fsprogs, and root for `build` (files of other owners). A boot
takes half a minute on idle CPUs. Exit status 4: the machine could not be built or did not answer in time.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

IMAGE = Path(__file__).parents[2] / "build" / "vm"
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
}
PACKAGES = (
    "systemd systemd-sysv dbus linux-image-cloud-amd64 python3 python3-numpy procps util-linux"
)
"""Of the image; what a job needs beside them it brings in its folder."""
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
    run_parser = verbs.add_parser("run")
    run_parser.add_argument("--seconds", type=float, default=600.0, help="give up after so many")
    run_parser.add_argument("folder", type=Path)
    run_parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        print(f"emulated machine: not installed: {' '.join(missing)}", file=sys.stderr)
        return 4
    if given.verb == "build":
        return build()
    if not given.folder.is_dir() or not given.command:
        parser.error("run needs a folder and a command")
    if not (IMAGE / "root.img").exists():
        print("emulated machine: no image; first: make vm", file=sys.stderr)
        return 4
    return run(given.folder, given.command, given.seconds)


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
        for line in ("ttyS1", "ttyS2"):  # no log-in where the job writes
            (units / f"serial-getty@{line}.service").symlink_to("/dev/null")
        (root / "etc/hostname").write_text("emulated\n")
        (root / "etc/fstab").write_text("")
        for name, kept in (("vmlinuz-*", "kernel"), ("initrd.img-*", "initrd")):
            shutil.copy(next((root / "boot").glob(name)), IMAGE / kept)
        _disk(IMAGE / "root.part", root, 2048)
        (IMAGE / "root.part").replace(IMAGE / "root.img")
    return 0


def run(folder: Path, command: list[str], seconds: float) -> int:
    """Boot, run the command in a copy of `folder`, and return its exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        copy, results, ended = (Path(scratch) / name for name in ("job", "results", "ended"))
        shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns("out"))
        (copy / ".command").write_text(shlex.join(command) + "\n")
        size = sum(each.lstat().st_size for each in copy.rglob("*")) >> 20
        _disk(Path(scratch) / "job.img", copy, size + size // 4 + RESULTS_MIB)
        results.write_bytes(b"")
        with results.open("r+b") as file:
            file.truncate(RESULTS_MIB << 20)
        drives = [
            (IMAGE / "root.img", ",snapshot=on"),
            (Path(scratch) / "job.img", ""),
            (results, ""),
        ]
        machine = [
            *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "2048"),
            *("-smp", "4,sockets=2,cores=2", "-no-reboot", "-net", "none", "-display", "none"),
            *("-object", "memory-backend-ram,id=m0,size=1024M"),
            *("-object", "memory-backend-ram,id=m1,size=1024M"),
            *("-numa", "node,nodeid=0,memdev=m0,cpus=0-1"),
            *("-numa", "node,nodeid=1,memdev=m1,cpus=2-3", "-numa", "dist,src=0,dst=1,val=21"),
            *("-kernel", str(IMAGE / "kernel"), "-initrd", str(IMAGE / "initrd")),
            *(
                "-append",
                "root=/dev/vda rw quiet console=ttyS0 systemd.unified_cgroup_hierarchy=1",
            ),
            *("-monitor", "none", "-serial", f"file:{scratch}/console"),
            *("-serial", "stdio", "-serial", f"file:{ended}"),
        ]
        for path, more in drives:
            machine += ["-drive", f"file={path},format=raw,if=virtio{more}"]
        try:
            subprocess.run(machine, stdin=subprocess.DEVNULL, timeout=seconds, check=True)
            words = ended.read_text().split()
            status = int(words[words.index("exit") + 1])
        except (subprocess.SubprocessError, ValueError, IndexError, OSError) as error:
            console = Path(scratch) / "console"
            last = console.read_text(errors="replace")[-2000:] if console.exists() else ""
            print(f"{last}\nemulated machine: no answer: {error}", file=sys.stderr)
            return 4
        if any(results.read_bytes()[:1024]):
            with tarfile.open(results) as archive:
                archive.extractall(folder, filter="data")
        return status


def _disk(image: Path, content: Path, mib: int) -> None:
    """Write an ext4 image that holds a folder."""
    image.unlink(missing_ok=True)
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-d", str(content), str(image), f"{mib}M"]
    subprocess.run(make, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    sys.exit(main())
