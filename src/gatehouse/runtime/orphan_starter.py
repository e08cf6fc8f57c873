"""Starts a program in a session of its own and exits at the end of its input.

The program then has another parent than at its start. This file is a program of its own, with the
standard library only. It prints the pid, or the negative error number if there is no process. The
first argument names the file to which the standard output of the program is appended.
"""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    _, output, executable, *command = sys.argv
    try:
        pid = os.posix_spawn(
            executable,
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
            ],
            setsid=True,
            # Python ignores them, which programs would inherit.
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
    except OSError as error:
        pid = -(error.errno or 1)
    print(pid, flush=True)
    sys.stdin.read()
    os._exit(0)
