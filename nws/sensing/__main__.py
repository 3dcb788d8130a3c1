"""``python -m nws.sensing --service URL --token-file FILE | --stdout``: the sensor process."""

import logging
import os
import signal
import sys
from types import FrameType

from nws.client import Client
from nws.errors import InputError
from nws.private import NotPrivateError, read_token
from nws.sensing.delivery import LineWriter
from nws.sensing.process import SensorProcess, parse


def main() -> int:
    """Measure until stopped; SIGTERM and SIGINT end the lease and leave in peace."""
    options = parse(sys.argv[1:])
    logging.basicConfig(format="nws sense: %(message)s", level=logging.INFO, stream=sys.stderr)
    signal.signal(signal.SIGTERM, _stop)
    if options.url is None or options.token_file is None:
        return _measure(SensorProcess(options, LineWriter(sys.stdout)))
    try:
        token = read_token(options.token_file)
    except (InputError, NotPrivateError) as error:
        sys.stderr.write(f"nws sense: {error} [{error.code}]\n")
        return 2
    with Client(options.url, token, certificate=options.certificate) as client:
        return _measure(SensorProcess(options, client))


def _measure(process: SensorProcess) -> int:
    """Run it until it is stopped, or its standard output is closed."""
    try:
        process.run()
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more is flushed
        return 0
    return 0


def _stop(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
