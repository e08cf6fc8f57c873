"""An NGINX that rejects text which others accept, as one with older tables of PCRE does."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from gatehouse.agent.nginx.binary import find_nginx_binary
from gatehouse.agent.nginx.changed_part import PART

REFUSED = "refused-here"
"""Text that this NGINX rejects in a regular expression."""
REFUSED_UNNAMED = "refused-nowhere"
"""Text that it rejects with a message without file and line."""
REFUSED_PAIR = ("refused-left", "refused-right")
"""Texts that it rejects only together, with a message without file and line."""
REFUSED_ORGANIZATION = "0" * 60
"""Name in a certificate that it rejects with such a message, too."""
KILLED = "killed-here"
"""Text with which each test is ended by a signal, as for lack of memory."""

_SCRIPT = """#!/bin/sh
conf=
for argument; do
  [ "$previous" = -c ] && conf=$argument
  previous=$argument
done
case " $* " in
*" -t "*)
  echo >>{tests}
  # The file for a part of the configuration names others elsewhere.
  read="${{conf%/*}} $(sed -n 's/^include \\(\\/.*\\);$/\\1/p' "${{conf%/*}}/{part}" 2>/dev/null)"
  has() {{ grep -RqF -- "$1" $read; }}
  if has "{killed}"; then kill -s KILL $$; fi
  if has "{unnamed}" || has "{organization}" || {{ has "{left}" && has "{right}"; }}; then
    echo "nginx: [emerg] could not build map_hash, you should increase map_hash_bucket_size" >&2
    exit 1
  fi
  place=$(grep -RnF -- "{refused}" $read | head -n 1)
  if [ -n "$place" ]; then
    file=${{place%%:*}}
    rest=${{place#*:}}
    number=${{rest%%:*}}
    # NGINX unescapes and quotes the expression before its own place.
    quoted=$(printf %s "${{rest#*:}}" | sed 's/^[^"]*"//; s/".*//')
    echo "nginx: [emerg] pcre2_compile() failed: too old in \\"$quoted\\" in $file:$number" >&2
    exit 1
  fi
esac
exec {nginx} "$@"
"""

_TESTS = "tests"
"""File with a line for each test of a configuration."""


def environment_with_strict_nginx(directory: Path) -> dict[str, str]:
    """Return an environment with this NGINX on its PATH. Write it into ``directory``."""
    binary = directory / "nginx"
    tests = directory / _TESTS
    tests.touch()
    tests.chmod(0o666)
    left, right = REFUSED_PAIR
    texts = {"refused": REFUSED, "unnamed": REFUSED_UNNAMED, "left": left, "right": right}
    nginx = find_nginx_binary(None)
    # Part of the name in Base64, which is the same wherever the name is in the certificate.
    encoded = base64.b64encode(REFUSED_ORGANIZATION[:24].encode()).decode()
    script = _SCRIPT.format(
        **texts, organization=encoded, killed=KILLED, tests=tests, nginx=nginx, part=PART
    )
    binary.write_text(script)
    for path in (directory, binary):
        path.chmod(0o755)
    return {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}


def number_of_tests(directory: Path) -> int:
    """Return how many configurations the NGINX in ``directory`` has tested."""
    return (directory / _TESTS).stat().st_size
