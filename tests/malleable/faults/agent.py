"""The agent of one trial: starts a job under its supervisor and repeats what it hears.

``agent.py JOB MAPS FOLDER PAUSE STRIKES``: the job counts on three hosts, with so many seconds between iterations;
FOLDER is for commits and the stop file.
"""

import json
import sys
from pathlib import Path

from apples.launch import LaunchCommand, Processes, RankGroup, local_spec
from apples.malleable import HostShare, describe_job

HERE = Path(__file__).parent
SLOTS = {"ada": 1, "bob": 2, "eve": 1}
name, maps, folder, pause, strikes = *sys.argv[1:3], Path(sys.argv[3]), *sys.argv[4:6]
program = (
    sys.executable,
    str(HERE.parent / "programs_mpi" / "counting.py"),
    "60",
    pause,
    str(folder / "stop"),
    *["prefetch"] * any(strike["stage"] == "prefetch" for strike in json.loads(strikes)),
)
places = [local_spec(RankGroup(host, slots, program)) for host, slots in SLOTS.items()]
first = [HostShare(host) for host in json.loads(maps)[0]]
job = describe_job(name, places, first, {}, commits=folder / "commits", commit_seconds=0.1)
manager = (sys.executable, str(HERE / "scripted_manager.py"))
argv = (*manager, "job.json", maps, str(folder / "stop"), strikes)


def repeated(lines):
    """Repeat what was heard; return the exit code that it means, None where the job goes on."""
    code = None
    for source, line in lines:
        text = line.decode(errors="replace")
        print("output" if source == "launcher" else source, text, flush=True)
        if text.startswith("notice JobEnded"):  # whatever the supervisor may still send
            code = 0 if text.split()[2] == "finished" else 5
        elif source == "report" and text.startswith("exit ") and code is None:
            code = int(text.split()[1]) & 127
    return code


with Processes(LaunchCommand(argv, {}, {"job.json": job.dumps()}), name) as processes:
    ended = None
    while processes.supervised and ended is None:
        ended = repeated(processes.read(1.0))
    last = repeated(processes.stop())  # ranks write to a pipe of their own: it may be read last
    heard = last if ended is None else ended
    sys.exit(5 if heard is None else heard)  # nobody said how it ended: lost
