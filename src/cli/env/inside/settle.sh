#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# settle COPY COMMIT: makes of it, which has that commit, a copy that is kept for the next one. It has no branch. What
# its index knows of files must still hold where they are others' and new. No file may be as new as the index, which
# status writes for that.
set -e
cd "$1"
printf '[core]\n\tcheckStat = minimal\n\ttrustctime = false\n' >> .git/config
echo "$2" > .git/HEAD
rm -rf .git/logs .git/refs/heads/cove
now=$(date '+%s %N')
case $now in
*\ [0-9]*) sleep "0.$(printf %09d $((1999999999 - 1${now#* })))" ;;
esac
while [ "$(date +%s)" = "${now% *}" ]; do sleep 0.05; done
git status --short -uno > /dev/null
