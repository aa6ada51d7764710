#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# place COPY USER: as root, a directory for the copy; the way to it can be walked by the user of the sandbox.
id "$2" > /dev/null 2>&1 || { echo "the template has no account $2 to work as" >&2; exit 1; }
set -e
mkdir -p "$1"
chown "$2" "$1"
cd "$1"
while [ "$PWD" != / ]; do
    cd ..
    chmod a+x .
done
