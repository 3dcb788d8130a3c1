"""Compare the time of a pipeline of two MPI tasks with the prediction, and the chosen unit with a scan.

    python experiments/pipeline_units.py [--steps 40] [--milliseconds 400] [--alternating]

The scaffold's program, whose tasks wait in place of computing, on four hosts of this machine. `--alternating`:
links so slow that both tasks use the same hosts in turn. Exit code 1: more than 10 % off the prediction, or above
1.05 of the best unit's time.

Result: `benchmarks/results/pipeline_units.json`.
"""

import argparse
import os
import sys
import tempfile

from apples.applications import PipelineSpec, run_pipeline
from apples.applications.scaffold import new

HOST = '[[host]]\nname = "{name}"\naddress = "127.0.0.1"\nseconds_per_point = {seconds}\n'
WAITS = """
def step(field):
    time.sleep(SECONDS[task.host] * (len(field) - 2) / SIZE)
    return field[1:-1]

def measure(total, rows):
    time.sleep(2 * SECONDS[task.host] * len(rows) / SIZE)
    total += rows

"""


def main():
    """Run the chosen unit and a scan, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--milliseconds", type=float, default=400.0)
    parser.add_argument("--overhead", type=float, default=0.5)
    parser.add_argument("--alternating", action="store_true")
    asked = parser.parse_args()
    bandwidth = "1e5" if asked.alternating else "1e9"
    seconds = asked.milliseconds / 1e3
    speeds = {"a": seconds, "b": seconds, "c": seconds, "d": 2 * seconds}
    with tempfile.TemporaryDirectory() as name:
        folder = new("waits", name, kind="pipeline")[0].parent
        hosts = "".join(HOST.format(name=host, seconds=each) for host, each in speeds.items())
        (folder / "hosts.toml").write_text(
            f"{hosts}[default_link]\nlatency = 1e-4\nbandwidth = {bandwidth}\n"
        )
        text = (folder / "pipeline.toml").read_text()
        text = text.replace('work = "size*size"', 'work = "1"').replace("2*size*size", "2")
        text = text.replace("size = 200", "size = 60").replace("1/1000", str(asked.overhead))
        (folder / "pipeline.toml").write_text(text)
        program = (folder / "program.py").read_text()
        begin, end = program.index("def step("), program.index("def wait(")
        waits = f"SECONDS, SIZE = {speeds}, 60\n{WAITS}"
        program = program[:begin] + waits + program[end:]
        handed = "between.hand_on(made if makes else here)\n"
        after = f"{' ' * 16}time.sleep({asked.overhead} if uses else 0)\n"
        program = program.replace(handed, handed + after)
        (folder / "program.py").write_text(program)
        found, chosen = {}, 0
        for unit in (0, 2, 4, 8, 14):
            spec = PipelineSpec(
                folder / "pipeline.toml",
                folder / "hosts.toml",
                {"steps": str(asked.steps)},
                unit=unit,
            )
            done = run_pipeline(spec, verify=False).execution
            chosen = chosen or done.plan.unit
            found.setdefault(done.plan.unit, (done.seconds, done.plan.seconds))
            print(
                f"{done.plan.mode}, {done.plan.unit:4d} at a time{'' if unit else ' (chosen)'}: "
                f"{done.seconds:.2f} s, {done.plan.seconds:.2f} predicted, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    took, predicted = found[chosen]
    best = took / min(each for each, _ in found.values())
    print(
        f"chosen: {took / predicted - 1:+.1%} of the predicted (bar 10 %), {best:.3f} of the best (bar 1.05)"
    )
    return 0 if abs(took / predicted - 1) <= 0.1 and best <= 1.05 else 1


if __name__ == "__main__":
    sys.exit(main())
