"""`RecordChanges`: the kernel tells when a job's record was replaced, or its supervisor is gone (inotify).

Only a job's owner can write into its folder, so nobody else can have anything told. What is told may be lost: it
says where to look, and not what there is.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time

from apples.jobs.store import StoredJob

IN_CLOSE_WRITE = 0x8
IN_MOVED_TO = 0x80
IN_Q_OVERFLOW = 0x4000
EVENT = struct.Struct("iIII")
"""Its watch, what happened, a cookie, and the bytes of the name that follows."""
MOST_BYTES = 1 << 12
"""That are taken at a time; beyond the limit of its queue the kernel drops events, and says so."""
# Three calls of the C library. A datagram of the supervisor instead would need a guarded socket,
# and could not report a supervisor that was killed.
_LIBC = ctypes.CDLL(None, use_errno=True)


class RecordChanges:
    """Watches the records of jobs.

    Where the kernel gives no watches (each user has a limited number) none is watched.
    """

    def __init__(self) -> None:
        self._handle = _LIBC.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lock = threading.Lock()
        self._jobs: dict[int, str] = {}
        self._events = select.poll()
        if self._handle >= 0:
            self._events.register(self._handle, select.POLLIN)

    def watch(self, job: StoredJob) -> bool:
        """Tell of a job from now on; whether that can be done."""
        # A record is replaced by a renamed file; a lock is closed by the last process that holds it.
        asked = (job.folder, IN_MOVED_TO), (job.folder / "lock", IN_CLOSE_WRITE)
        with self._lock:
            found = [
                _LIBC.inotify_add_watch(self._handle, os.fsencode(path), what)
                for path, what in asked
            ]
            self._jobs |= {watch: job.id for watch in found if watch >= 0}
        if min(found) >= 0:
            return True
        self.forget(job)
        return False

    def forget(self, job: StoredJob) -> None:
        """Tell nothing more of a job."""
        with self._lock:
            for watch in [watch for watch, name in self._jobs.items() if name == job.id]:
                del self._jobs[watch]
                _LIBC.inotify_rm_watch(self._handle, watch)

    def wait(self, seconds: float) -> set[str]:
        """Return the ids of jobs of which something is told, after waiting at most so long for the first."""
        if self._handle < 0:
            time.sleep(seconds)
            return set()
        if not self._events.poll(1e3 * seconds):
            return set()
        data, at, watches = os.read(self._handle, MOST_BYTES), 0, set[int]()
        while at < len(data):
            watch, what, _, size = EVENT.unpack_from(data, at)
            at += EVENT.size + size
            watches.add(watch)
            if what & IN_Q_OVERFLOW:
                return self._all()
        with self._lock:
            return {self._jobs[watch] for watch in watches if watch in self._jobs}

    def close(self) -> None:
        """Watch nothing more; nobody waits."""
        with self._lock:
            handle, self._handle = self._handle, -1
            self._jobs.clear()
        if handle >= 0:
            os.close(handle)

    def _all(self) -> set[str]:
        with self._lock:
            return set(self._jobs.values())
