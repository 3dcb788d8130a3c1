"""The CPU a command takes before it does anything, in ratio to importing NumPy in the same minute.

    python benchmarks/start_up.py [--repeat 10]

User and system seconds of the whole process, the first round thrown away, medians; rounds are interleaved, so
that a machine that others use disturbs all alike. Exit code 1 where a bar is missed.
"""

import argparse
import os
import resource
import subprocess
import sys
import sysconfig
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "examples" / "jacobi2d"
SCRIPTS = Path(sysconfig.get_path("scripts"))
FILES = [f"--{name}={SAMPLE / name}.toml" for name in ("hosts", "template", "user")]

COMMANDS = {
    "apples --help": ([SCRIPTS / "apples", "--help"], 1.2),
    "apples jobs": ([SCRIPTS / "apples", "jobs"], 1.2),
    "hat check": ([SCRIPTS / "hat", "check", SAMPLE / "template.toml"], 1.2),
    "apples hosts check": ([SCRIPTS / "apples", "hosts", "check", SAMPLE / "hosts.toml"], 1.2),
    "apples plan": ([SCRIPTS / "apples", "plan", "--weather=static", *FILES], 3.0),
}
"""By name: the words, and the bar."""
REFERENCES = {
    "import numpy": [sys.executable, "-c", "import numpy"],
    "typer and pydantic": [
        *(sys.executable, "-c"),
        "import typer, typer.core, pydantic\nclass A(pydantic.BaseModel):\n    a: int = 0",
    ],
}
"""What the bars count in; and what a command that parses options and checks a file cannot go below."""


def cpu_seconds(words):
    """Run a command; return its user and system seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=10, help="rounds")
    repeat = parser.parse_args().repeat
    commands = {**REFERENCES, **{name: words for name, (words, _) in COMMANDS.items()}}
    seconds = {name: [] for name in commands}
    for _ in range(repeat + 1):
        for name, words in commands.items():
            seconds[name].append(cpu_seconds(words))
    typical = {name: median(found[1:]) for name, found in seconds.items()}
    missed = False
    print(f"median of {repeat}, load {os.getloadavg()[0]:.1f}")
    for name, found in typical.items():
        ratio = found / typical["import numpy"]
        bar = COMMANDS.get(name, (None, None))[1]
        said = "" if bar is None else f"  bar {bar}: {'kept' if ratio <= bar else 'MISSED'}"
        missed |= bar is not None and ratio > bar
        print(f"{name:20} {found:6.3f} s  {ratio:5.2f}{said}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
