#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# settle COPY NAME: makes of it a copy that is kept for the next one. It has no branch. What its index knows of files
# must still hold where they are others' and new. No file may be as new as the index, which status writes for that.
set -e
cd "$1"
git config core.checkStat minimal
git config core.trustctime false
git checkout -q --detach
git branch -q -D "cove/$2"
rm -rf .git/logs
now=$(date +%s)
while [ "$(date +%s)" = "$now" ]; do sleep 0.05; done
git status --short -uno > /dev/null
