#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# give-some COPY BASE FROM WORK HEAD NEW: as give.sh, where it is known which paths can differ from those of the commit
# FROM, a line each on stdin: what HEAD has, and of these and of what was committed since what is there. No file of the
# others is looked at, nor the index. Ignored ones count when they are committed, or added for it; where NEW is empty
# all were committed in FROM. Programs are started only where the shell can't do without.
git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.quotePath=false "$@"; }
look() {
    while IFS= read -r p; do
        if [ -f "$p" ] || [ -L "$p" ]; then printf '%s\n' "$p" >&3; else printf 'D %s\n' "$p" >&4; fi
    done
}
set -e
cd "$1"
{ read -r _ head < .git/HEAD && read -r head < ".git/$head"; } 2> /dev/null || head=
[ ${#head} = 40 ] || head=$(git rev-parse -q --verify 'HEAD^{commit}')
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
exec 3> "$d/there" 4> "$d/gone"
look
if [ "$head" != "$3" ]; then
    git diff-tree -r --no-renames --name-only "$3" "$head" > "$d/since"
    if grep -q '^"' "$d/since"; then exit 1; fi
    look < "$d/since"
fi
exec 3>&- 4>&-
if [ "$head$6" != "$3" ] && git check-ignore --no-index --stdin < "$d/there" > "$d/ignored"; then
    sed 's/^/:/' "$d/ignored" | git cat-file --batch-check='%(objecttype)' | paste -d ' ' - "$d/ignored" |
        sed -n 's/^blob //p' > "$d/known"
    grep -vxFf "$d/known" "$d/ignored" > "$d/not" || :
    grep -vxFf "$d/not" "$d/there" > "$d/kept" || :
    mv "$d/kept" "$d/there"
fi
export GIT_INDEX_FILE="$d/index"
git update-index --add --stdin < "$d/there"
git ls-files -s > "$d/new"
unset GIT_INDEX_FILE
work=$({
    printf 'commit refs/cove/work\nmark :1\ncommitter Cove <cove@localhost> 0 +0000\n'
    printf 'data 13\nnot committed\nfrom %s\n' "$head"
    while IFS= read -r p; do printf '%s\n' "$p"; done < "$d/gone"
    while IFS='	' read -r of p; do printf 'M %s %s\n' "${of% 0}" "$p"; done < "$d/new"
    printf '\nget-mark :1\nreset refs/cove/work\nfrom %040d\n\n' 0
} | git -c fastimport.unpackLimit=1 fast-import --quiet --force)
[ -n "$work" ]
echo "$work"
[ "$work $head" != "$4 $5" ] || exit 0
printf '%s\n^%s\n' "$work" "$2" | git pack-objects --revs --stdout --quiet --window=0 --compression=1
