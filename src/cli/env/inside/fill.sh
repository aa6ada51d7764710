#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fill COPY NAME COMMIT whole|shallow SETTINGS HASH: a repository of the pack and index that lie there, on the branch
# cove/NAME. SETTINGS: lines for Git's configuration, also for that of the account.
set -e
cd "$1"
git init -q .
echo "ref: refs/heads/cove/$2" > .git/HEAD
[ "$4" = whole ] || echo "$3" > .git/shallow
p=.git/objects/pack
for x in pack idx; do
    chmod 0444 "$p/new.$x"
    mv "$p/new.$x" "$p/pack-$6.$x"
done
git update-ref "refs/heads/cove/$2" "$3"
git -c checkout.workers=4 reset -q --hard
for of in ~/.gitconfig .git/config; do
    printf '%s' "$5" >> "$of"
done
