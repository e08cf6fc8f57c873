"""Runs a program under a seccomp filter, which makes `pidfd_getfd` fail with EPERM."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

PIDFD_GETFD = 438
NOT_PERMITTED = 77
"""Exit status if the kernel does not accept the filter."""

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ERRNO, _ALLOW = 0x0005_0000, 0x7FFF_0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def forbid() -> bool:
    """Forbid the system call to this process and its children. Return whether that worked."""
    instructions = (
        (_LOAD, 0, 0, 0),
        (_JUMP_IF_EQUAL, 0, 1, PIDFD_GETFD),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = b"".join(struct.pack("HBBI", *fields) for fields in instructions)
    program = _Program(len(instructions), code)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0):
        return False
    return libc.syscall(PIDFD_GETFD, -1, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM


if __name__ == "__main__":
    if not forbid():
        sys.exit(NOT_PERMITTED)
    os.execv(sys.argv[1], sys.argv[1:])
