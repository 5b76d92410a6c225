"""Renders the program that Docker starts for ``--gpus``.

dockerd knows one maker of GPUs by the name of a program, looks for it in its ``PATH`` once, when it starts, and adds it
as a ``prestart`` hook to each container that is given ``--gpus`` (``runtime_hook.inputs.bundle`` has the sources). Ours
stands where no package puts files, and goes behind NVIDIA's own: while that is installed, everything is as it was.
"""

from __future__ import annotations

from provision.planning.engines.containerd.base_spec import HOOK_PATH

GPUS_PATH = "/usr/local/sbin/nvidia-container-runtime-hook"
NVIDIAS_PATH = "/usr/bin/nvidia-container-runtime-hook"
MARK = "# managed by grapnel: "
_TEXT = """\
#!/bin/sh
{mark}what `docker run --gpus` starts. NVIDIA's program of this name goes first where it is installed.
theirs={theirs}
[ -x "$theirs" ] && ! [ "$theirs" -ef "$0" ] && exec "$theirs" "$@"
if [ "${{1-}}" != prestart ]; then
    echo "nvidia-container-runtime-hook: this is grapnel's, for docker run --gpus, and knows prestart alone" >&2
    exit 2
fi
exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \\
    {hook} prestart --entitlement gpus
"""


def render_gpus_program(*, hook: str = HOOK_PATH, theirs: str = NVIDIAS_PATH) -> str:
    """Return the program's text."""
    return _TEXT.format(mark=MARK, hook=hook, theirs=theirs)
