"""A run of pytest ends whatever hangs: a failing test, the end of a fixture, or a thread that a test has left."""

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback

import pytest
import pytest_timeout

AGAIN_SECONDS = 60.0
"""Between two shots of a timer."""
END_SECONDS = 240.0
"""For all fixtures that end after one test, or after the last one."""
LEAVE_SECONDS = 20.0
"""For threads that are still there when all is over."""


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(settings):
    """Have pytest-timeout's timer go off again and again.

    What its first shot raises unwinds the test, and that may hang as well: `with subprocess.Popen(..)` waits for
    the process without a limit.
    """
    done = yield
    if signal.getitimer(signal.ITIMER_REAL)[0]:  # none where the timer is a thread
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, AGAIN_SECONDS)
    return done


@contextlib.contextmanager
def limited(seconds):
    """Fail where this takes longer, and again whenever `AGAIN_SECONDS` have passed since."""

    def fail(*_):
        if not pytest_timeout.is_debugging():
            pytest.fail(f"fixtures have not ended within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """Give fixtures a time of their own to end: pytest-timeout's timer is cancelled at a test's first failure."""
    item.config.hook.pytest_timeout_cancel_timer(item=item)
    with limited(END_SECONDS):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session):
    """Limit the end of fixtures that are left for here by an interrupt or --session-timeout, before the summary.

    Where pytest-xdist's workers run the tests there are none, and it ends the workers within a limit of its own.
    """
    workers = session.config.pluginmanager.hasplugin("dsession")
    try:
        with contextlib.nullcontext() if workers else limited(END_SECONDS):
            return (yield)
    except (Exception, BaseExceptionGroup, pytest.fail.Exception):  # noqa: BLE001 - it is printed
        traceback.print_exc()
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """End this process with its status even if Python waits for threads that do not end.

    A worker of pytest-xdist is ended by whoever started it.
    """
    session = config.pluginmanager.getplugin("session")
    if session is None or hasattr(config, "workerinput"):
        return
    if left():
        leaving = threading.Thread(target=leave, args=(int(session.exitstatus),), daemon=True)
        leaving.start()


def left():
    """Return the names of the threads that keep Python from ending."""
    return [
        one.name
        for one in threading.enumerate()
        if not one.daemon and one is not threading.main_thread()
    ]


def leave(status):
    """End this process if it still runs after a while: threads of a pool end by themselves."""
    time.sleep(LEAVE_SECONDS)
    words = f"\nthreads that tests have left keep pytest from ending: {', '.join(left())}"
    print(words, file=sys.stderr)
    faulthandler.dump_traceback(sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
