"""Jobs that do not want to end: what the daemon is to be rid of, every time."""

import os
import sys
import warnings

from apples.topology import starter

BAD_JOBS = {
    "ignores TERM": "trap '' TERM; while :; do sleep 100; done",
    "leaves its session": "setsid sleep 1000 & sleep 1000",
    "forks twice": "(setsid sh -c 'sleep 1000 & exit' &) ; exit",
    "forks for ever": "f() { sleep 0.01; f & }; f; while :; do sleep 0.01; done",
    "hands over for ever": (
        "exec python3 -IS -c 'import os\nwhile True:\n  os.fork() and os._exit(0)'"
    ),
    "stops itself": "kill -STOP $$",
    "has many children": "for i in $(seq 50); do sleep 1000 & done; wait",
    "clears its environment": "exec env -i sh -c 'sleep 1000 & wait'",
}


def fork():
    """Fork, threads or not: what the child does until it execs or ends needs no lock of another thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of it
        return os.fork()


class Started:
    """A job's command, bound by the real starter in a fork of this process: no interpreter to start.

    Parameters
    ----------
    place, job
        The daemon's socket, and the job to enter.
    words
        The command.
    """

    def __init__(self, place, job, *words):
        self.ended = False
        self.pid = fork()
        if self.pid == 0:
            try:
                nothing = os.open(os.devnull, os.O_RDWR)
                for standard in range(3):
                    os.dup2(nothing, standard)
                sys.argv = ["starter", str(place), job, *words]
                starter.main()
            finally:
                os._exit(1)

    def over(self):
        """Whether it has ended."""
        if not self.ended:
            self.ended = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        return self.ended

    def wait(self):
        """Return when it has ended."""
        if not self.ended:
            os.waitpid(self.pid, 0)
            self.ended = True
