"""``python -m nws.sensing --service URL --token-file FILE | --stdout``: the sensor process."""

import contextlib
import logging
import os
import signal
import sys
from types import FrameType

from nws.client import Client
from nws.errors import InputError
from nws.private import NotPrivateError, read_token
from nws.sensing.delivery import LineWriter
from nws.sensing.process import SensorOptions, SensorProcess, parse, reachable_address


def main() -> int:
    """Measure until stopped; SIGTERM and SIGINT end the registration and exit with code 0."""
    options = parse(sys.argv[1:])
    logging.basicConfig(format="nws sense: %(message)s", level=logging.INFO, stream=sys.stderr)
    signal.signal(signal.SIGTERM, _stop)
    if options.url is None or options.token_file is None:
        return _measure(SensorProcess(options, LineWriter(sys.stdout)))
    try:
        token = read_token(options.token_file)
        _check_listen(options)
    except (InputError, NotPrivateError) as error:
        sys.stderr.write(f"nws sense: {error} [{error.code}]\n")
        return 2
    url, ca = options.url, options.ca
    return _measure(SensorProcess(options, lambda: Client(url, token, certificate=ca)))


def _measure(process: SensorProcess) -> int:
    """Run the process until it is stopped, or its standard output is closed."""
    try:
        process.run()
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more is flushed
        return 0
    return 0


def _check_listen(options: SensorOptions) -> None:
    """Raise InputError if other hosts could not reach the endpoint; the service may be unknown yet."""
    if options.listen is not None and options.url is not None:
        with contextlib.suppress(OSError):
            reachable_address(options.listen, options.url)


def _stop(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
