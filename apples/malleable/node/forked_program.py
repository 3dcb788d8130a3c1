"""A fork becomes a Python program: it runs and ends as in an interpreter that was started for it."""

from __future__ import annotations

import builtins
import ctypes
import importlib.machinery
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NoReturn

from apples.launch.job_processes import IGNORED_BY_PYTHON

LARGEST_CODE = 1 << 63
"""Exit codes are a C long: Python ends with 255 where one is none."""


def be_program(program: Sequence[str]) -> NoReturn:
    """Run a program as the interpreter of its command line would, and end this process as that would.

    What it has imported and defined is there to its end: threads are joined and functions called at exit while its
    module still is `__main__`.
    """
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    time.tzset()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # no two ranks draw the same numbers
    sys.orig_argv[:] = program
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined] # else it is that of this one's parent
    try:
        _run(program)
        code = 0
    except BaseException as error:  # noqa: BLE001 - the program's, whatever it is
        code = _ended_by(error)
    # What an interpreter does at its end: threads, what was registered, streams, and then MPI's own.
    ctypes.pythonapi.Py_Exit(code)
    raise AssertionError("it has ended")


def _run(program: Sequence[str]) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    if program[1] == "-m":
        _look_first(Path.cwd())
        sys.argv[:] = ["-m", *program[3:]]
        runpy._run_module_as_main(program[2])  # type: ignore[attr-defined]
        return
    place = str(Path.cwd() / program[1])
    _look_first(Path(place).resolve().parent)
    sys.argv[:] = program[1:]
    loader = importlib.machinery.SourceFileLoader("__main__", place)
    main.__dict__.update(__file__=place, __loader__=loader, __package__=None, __cached__=None)
    code = compile(Path(place).read_bytes(), program[1], "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - what this process is for


def _look_first(folder: Path) -> None:
    """Have modules looked for in a folder first, as an interpreter does in that of its program."""
    if not getattr(sys.flags, "safe_path", False):  # of Python 3.11
        sys.path.insert(0, str(folder))


def _ended_by(error: BaseException) -> int:
    """Say what ended a program, where its interpreter would; return the exit code."""
    if isinstance(error, SystemExit):
        return _code(error.code)
    trace = _without_ours(error.__traceback__)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    try:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except SystemExit as end:
        return _code(end.code)
    except BaseException as failed:  # noqa: BLE001 - the program's hook's, whatever it is
        if sys.stderr is not None:
            failed.__context__ = None
            sys.stderr.write("Error in sys.excepthook:\n")
            traceback.print_exception(failed.with_traceback(_without_ours(failed.__traceback__)))
            sys.stderr.write("\nOriginal exception was:\n")
            traceback.print_exception(error)
    if not isinstance(error, KeyboardInterrupt):
        return 1
    # It ends by the signal, and after all else: the C library calls this with the exit code, which is its number.
    library = ctypes.CDLL(None)
    library.on_exit(library["raise"], None)
    return int(signal.SIGINT)


def _code(code: object) -> int:
    """Return the exit code of `sys.exit`, and say what it is where it is a text."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -LARGEST_CODE <= code < LARGEST_CODE else 0xFF
    if sys.stderr is not None:
        sys.stderr.write(f"{code}\n")
    return 1


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Leave out of a traceback how it was come to the program."""
    while trace and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace
