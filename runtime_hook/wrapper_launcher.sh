#!/bin/sh
# The executable grapnel-runtime as shipped: a copy of this file beside grapnel-hook and the folder runtime_hook/.
# runtime_hook/engines/wrapper.py knows everything. Here a call that cannot be meant for it, as no word of it is "create"
# or "run", becomes the real runtime in 1 ms instead of Python's 10; whatever is unusual goes to Python, too. The shell adds
# PWD to the environment, and nothing else changes.
for word do
    case $word in
        create | run) exec "${0%/*}/grapnel-hook" runtime "$@" ;;
    esac
done
case ${1-}:${2-} in
    *:--grapnel-*) ;;
    --grapnel-runtime=/*)
        runtime=${1#*=}
        if [ -f "$runtime" ] && [ -x "$runtime" ]; then
            shift
            exec "$runtime" "$@"
        fi
        ;;
    --grapnel-*) ;;
    *)
        for runtime in \
            /usr/bin/runc /usr/sbin/runc /usr/local/bin/runc /usr/local/sbin/runc \
            /usr/bin/crun /usr/sbin/crun /usr/local/bin/crun /usr/local/sbin/crun; do
            [ -x "$runtime" ] && exec "$runtime" "$@"
        done
        ;;
esac
exec "${0%/*}/grapnel-hook" runtime "$@"
