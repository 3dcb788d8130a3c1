"""Takes a lab up or down and kills itself at the K-th thing it does to the machine.

``python interrupted.py K up FILE`` or ``K down FOLDER``; prints how many things there were if it lives.
"""

import os
import signal
import sys
from pathlib import Path

from apples import lab

COUNTED = {"subprocess.Popen", "os.mkdir", "os.rmdir", "os.rename", "os.remove", "os.kill"}


def main():
    limit, verb, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    done = 0

    def hook(event, details):
        nonlocal done
        writes = event == "open" and details[2] & (os.O_WRONLY | os.O_RDWR)
        if event in COUNTED or writes:
            done += 1
            if done == limit:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    if verb == "up":
        lab.up(target, speeds=lambda *_: {})
    else:
        lab.down(Path(target))
    print(done)


if __name__ == "__main__":
    main()
