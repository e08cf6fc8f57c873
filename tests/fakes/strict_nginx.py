"""An NGINX that rejects text which others accept, as one with older tables of PCRE does."""

from __future__ import annotations

import os
from pathlib import Path

from gatehouse.agent.nginx.binary import find_nginx_binary

REFUSED = "refused-here"
"""Text that this NGINX rejects in a regular expression."""

_SCRIPT = """#!/bin/sh
conf=
for argument; do
  [ "$previous" = -c ] && conf=$argument
  previous=$argument
done
case " $* " in
*" -t "*)
  place=$(grep -RnF -- "{refused}" "${{conf%/*}}" | head -n 1)
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


def environment_with_strict_nginx(directory: Path) -> dict[str, str]:
    """Return an environment with this NGINX on its PATH. Write it into ``directory``."""
    binary = directory / "nginx"
    binary.write_text(_SCRIPT.format(refused=REFUSED, nginx=find_nginx_binary(None)))
    for path in (directory, binary):
        path.chmod(0o755)
    return {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
