#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# copy SOURCE DESTINATION OWNER MODE DIRECTORY USER WHERE: unpacks the archive WHERE/a and moves SOURCE of it to
# DESTINATION, which is relative to DIRECTORY, or to the home of USER where that is empty.
set -e
trap 'rm -rf "$7"' EXIT
mkdir "$7/t"
command -v tar >/dev/null || { echo 'there is no tar in the image' >&2; exit 1; }
case $(od -An -N2 -tx1 "$7/a" 2>/dev/null | tr -d ' \n') in 1f8b) z=z ;; *) z= ;; esac
tar -x${z}f "$7/a" -C "$7/t"
rm "$7/a"
base=$5
if [ -z "$base" ]; then
    while IFS=: read -r name _ _ _ _ home _; do [ "$name" != "$6" ] || base=$home; done </etc/passwd
fi
case $2 in /*) to=$2 ;; *) to=${base:-/}/$2 ;; esac
from=$7/t/$1
if [ -L "$from" ] || [ -f "$from" ]; then
    chown -h "$3" "$from"
    if [ -n "$4" ] && [ ! -L "$from" ]; then chmod "$4" "$from"; fi
    case $to in */) mkdir -p "$to" ;; *) mkdir -p "$(dirname "$to")" ;; esac
    mv -f "$from" "$to"
elif [ -d "$from" ]; then
    chown -R -h "$3" "$from"
    if [ -n "$4" ]; then find "$from" ! -type l -exec chmod "$4" {} +; fi
    new=
    if [ ! -d "$to" ]; then new=1; mkdir -p "$to"; fi
    # By way of tar, like Docker: links to directories in the way are followed, other things in the way replaced.
    flags=--keep-directory-symlink
    tar --help 2>&1 | grep -q keep-directory-symlink || flags=
    (cd "$from" && tar -cf - .) | tar -xpf - -C "$to" $flags ${flags:+--no-overwrite-dir}
    if [ -n "$new" ]; then chown "$3" "$to"; fi
else
    echo "there is no '$1' in the files that were sent" >&2
    exit 1
fi
