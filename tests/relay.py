"""The way to a host in tests: ``relay.py COMMAND..`` passes on what is said to a command and what it answers.

The command is no descendant that ends with this process, as what a login starts does not end with ssh: its input
ends, and nobody takes what it writes.
"""

import os
import subprocess
import sys
import threading


def passed_on(source, target):
    """Pass on what comes until its end, or until nobody takes it."""
    try:
        while data := os.read(source, 1 << 16):
            os.write(target, data)
    except OSError:
        pass
    os.close(target)


if __name__ == "__main__":
    far = subprocess.Popen(
        sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    asked = threading.Thread(target=passed_on, args=(0, far.stdin.fileno()), daemon=True)
    asked.start()
    passed_on(far.stdout.fileno(), 1)
    os._exit(far.wait())
