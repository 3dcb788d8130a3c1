"""What `apples run` takes beyond its loop, phase by phase: here, over ssh to 5 lab hosts, over ssh to 50.

    python benchmarks/look.py [--hosts 0 5 50] [--repeat 4] [--grid 1000] [--iterations 500] [--json FILE]

Lab hosts stand on two sites (five where there are 50) behind links of 6 MB/s, with CPU quotas of .3 to .6;
needs root and what `apples lab` needs, brings its labs up and down. The first run of a row remembers nothing;
the later ones come right after it. Wall is of the whole command, verification left out; CPU seconds are of the
whole machine while it ran, hosts included, so that others who use it show. Modules are compiled before, as
where they were installed: with PYTHONDONTWRITEBYTECODE set, a source tree is compiled anew in each process.
Bars: beyond loop and calibration 1.0 s here, 4 s to 5 hosts, 8 s to 50, of the median of the later runs. Exit 1
when one is missed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "jacobi2d"
PACKAGES = ("apples", "nws", "hat", "blueprints", "examples")
BARS = {0: 1.0, 5: 4.0, 50: 8.0}
QUOTAS = (0.6, 0.4, 0.5, 0.6, 0.3)
HERE = '[[host]]\nname = "here"\naddress = "127.0.0.1"\n\n[default_link]\nlatency = 1e-5\nbandwidth = 1e9\n'


def apples(*words):
    argv = [sys.executable, "-m", "apples", *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    if done.returncode:
        said = done.stderr or done.stdout  # with --json an error is a document
        sys.exit(f"apples {words[0]}: exit {done.returncode}: {said[-600:]}")
    return json.loads(done.stdout) if done.stdout.startswith("{") else {}


def lab_of(count):
    """Return the text of a lab."""
    sites = 2 if count <= 10 else 5
    text = f'name = "look{count}"\nssh = true\n'
    text += "".join(f'[[site]]\nname = "s{i}"\nbandwidth = 6e6\n' for i in range(sites))
    for i in range(count):
        text += f'[[host]]\nname = "h{i}"\nsite = "s{i % sites}"\ncpu = {QUOTAS[i % 5]}\n'
    return text


def compile_modules():
    """Have the byte code of our packages where each process finds it."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    packages = [str(EXAMPLE.parents[1] / name) for name in PACKAGES]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True)


def busy_seconds():
    """Return the CPU seconds that this machine has worked since it started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def one_run(hosts, options, over_ssh):
    words = ("run", "--hosts", hosts, "--template", EXAMPLE / "template.toml")
    words += ("--user", EXAMPLE / "user.toml", "--no-verify", "--json")
    words += ("--set", f"grid={options.grid}", "--set", f"iterations={options.iterations}")
    words += ("--actuator", "ssh" if over_ssh else "local")
    begin, worked = time.perf_counter(), busy_seconds()
    document = apples(*words)
    wall, cpu = time.perf_counter() - begin, busy_seconds() - worked
    execution = document["execution"]
    looked = document["plan"]["weather"]["looked"] or {}
    return {
        "wall": wall,
        "beyond": wall - execution["measured_seconds"] - document["phases"].get("calibrate", 0.0),
        "cpu": cpu,
        "phases": document["phases"],
        "hosts": len(document["plan"]["chosen"]["hosts"]),
        "off": execution["off"],
        "links": len(looked.get("links", ())),
        "remembered": len(looked.get("remembered", ())),
    }


def rows_of(count, options, folder):
    """Run so many times on so many hosts; return what each run took."""
    if count == 0:
        hosts = Path(folder) / "here.toml"
        hosts.write_text(HERE)
        return [one_run(hosts, options, False) for _ in range(options.repeat)]
    lab = Path(folder) / f"lab{count}.toml"
    lab.write_text(lab_of(count))
    hosts = apples("lab", "up", lab, "--json")["hosts"]
    try:
        return [one_run(hosts, options, True) for _ in range(options.repeat)]
    finally:
        apples("lab", "down", f"look{count}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[0, 5, 50])
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--grid", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    missed, found = False, {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        compile_modules()
        for count in options.hosts:
            runs = found[count] = rows_of(count, options, folder)
            later = statistics.median(run["beyond"] for run in runs[1:] or runs)
            bar = BARS.get(count)
            kept = bar is None or later <= bar
            missed |= not kept
            print(
                f"{count or 'no'} other hosts, beyond the loop: first {runs[0]['beyond']:.2f} s, ",
                end="",
            )
            said = "" if bar is None else f"  (bar {bar:.0f} s: {'kept' if kept else 'MISSED'})"
            print(f"later {later:.2f} s{said}")
            for run in runs:
                parts = "  ".join(f"{name} {took:.2f}" for name, took in run["phases"].items())
                links = f"{run['links']} links measured, {run['remembered']} remembered"
                print(
                    f"  {run['beyond']:6.2f} s, {run['cpu']:5.1f} CPU s, {run['hosts']:2} hosts, "
                    f"off {run['off']:+.0%}, {links}: {parts}"
                )
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
