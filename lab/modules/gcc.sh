#!/bin/sh
# GCC for the driver's sources: kernel headers that a hundred of them include are compiled once, with the flags of the
# first that does. A check that includes none of them, and none of DRM's, gets none, and others get them together: the
# answers of conftest.sh stay what they are.
set -eu
compiler=/usr/bin/${0##*/}
for source; do :; done
kernel='linux/kconfig.h linux/mm.h linux/pci.h'
case " $* " in
*' -D__KERNEL__ '*' -c '*conftest*.c' ')
    case $(cat "$source") in
    *'<linux/mm.h>'* | *'<linux/pci.h>'* | *'<drm/'*) name=conftest headers=$kernel ;;
    *) exec "$compiler" "$@" ;;
    esac
    ;;
*' -D__KERNEL__ '*' -c '*/nvidia-uvm/*.c' ') name=uvm headers=uvm_linux.h ;;
*' -D__KERNEL__ '*' -c '*/nvidia/*.c' ') name=nvidia headers=$kernel ;;
*' -D__KERNEL__ '*' -c '*/nvidia-drm/*.c' ') name=drm headers=$kernel ;;
*) exec "$compiler" "$@" ;;
esac
left=$#
for word; do # all but the source; GCC refuses compiled headers where macros have other values
    shift
    left=$((left - 1))
    case $word in
    -DKBUILD_BASENAME=*) word='-DKBUILD_BASENAME="compiled"' ;;
    */compiler-version.h) word=/dev/null ;; # cannot be included twice
    esac
    [ $left = 0 ] || set -- "$@" "$word"
done
header=${TMPDIR:-/tmp}/compiled-$name.h
exec 9>"$header.lock"
flock 9
if [ ! -e "$header" ]; then
    : >"$header" # which GCC reads where it refuses the compiled one: a source with other flags reads its own headers
    for included in $headers; do echo "#include <$included>"; done >"$header.all"
    "$compiler" "$@" -o "$header.new" -x c-header "$header.all" >"$header.log" 2>&1 && mv "$header.new" "$header.gch"
fi
exec 9>&-
[ ! -e "$header.gch" ] || set -- -include "$header" "$@"
exec "$compiler" "$@" "$source"
