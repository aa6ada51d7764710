#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# give COPY BASE FROM WORK HEAD: the name of a commit of what is not committed, then a pack of all that BASE doesn't
# have; no pack if that commit is WORK, on top of HEAD. The index is not touched. Repositories that lie in the copy are
# left out.
git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor=false "$@"; }
if ! cd "$1" || ! at=$(git rev-parse 'HEAD^{commit}' --git-path index 2> /dev/null); then
    echo 'there is no commit' >&2
    exit 1
fi
head=${at%%[!0-9a-f]*}
index=$(mktemp) && cp "${at#"$head"?}" "$index" 2> /dev/null
export GIT_INDEX_FILE="$index"
git add -A > /dev/null 2>&1
git diff --cached --raw -z "$head" | tr '\0' '\n' | sed -n '/^:[0-7]* 160000 /{n;p}' |
    while IFS= read -r p; do git reset -q "$head" -- ":(literal)$p"; done
export GIT_AUTHOR_DATE='@1000000000 +0000' GIT_COMMITTER_DATE='@1000000000 +0000'
work=$(git commit-tree -p "$head" -m 'not committed' "$(git write-tree)") || exit 1
rm -f "$index"
unset GIT_INDEX_FILE
echo "$work"
[ "$work $head" != "$4 $5" ] || exit 0
printf '%s\n^%s\n' "$work" "$2" | git pack-objects --revs --stdout --quiet --delta-base-offset
