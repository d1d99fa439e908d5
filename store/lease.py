"""Leases: who of several processes still writes.

A living writer holds an exclusive ``flock`` on a small file beside the store, named by its epoch. The kernel lets go
of it when the process ends, however it ends, so neither reused process ids nor clocks matter.
"""

from __future__ import annotations

import contextlib
import fcntl
import os


class Lease:
    """The lock of one writer epoch, held until ``release``."""

    def __init__(self, store: str, epoch: int) -> None:
        """Raises OSError where the file cannot be made or is locked already."""
        self._path = _path(store, epoch)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    def release(self) -> None:
        """Let go. Idempotent."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(self._fd)
            self._fd = -1


def alive(store: str, epoch: int) -> bool:
    """Whether the epoch's writer lives."""
    try:
        fd = os.open(_path(store, epoch), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # A shared lock, so that several askers do not take one another for the writer.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def forget(store: str, epoch: int) -> None:
    """Remove the file of a dead epoch."""
    with contextlib.suppress(OSError):
        os.unlink(_path(store, epoch))


def _path(store: str, epoch: int) -> str:
    return f"{store}-lease-{epoch}"
