#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fill COPY NAME COMMIT whole|shallow AUTHOR EMAIL HASH: a repository of the pack and index that lie there, on the
# branch cove/NAME.
set -e
cd "$1"
git init -q .
git symbolic-ref HEAD "refs/heads/cove/$2"
[ "$4" = whole ] || echo "$3" > .git/shallow
p=.git/objects/pack
for x in pack idx; do
    chmod 0444 "$p/new.$x"
    mv "$p/new.$x" "$p/pack-$7.$x"
done
git update-ref "refs/heads/cove/$2" "$3"
git -c checkout.workers=4 reset -q --hard
for where in --global --local; do
    git config "$where" user.name "$5"
    git config "$where" user.email "$6"
done
