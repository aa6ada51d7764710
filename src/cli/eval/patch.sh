#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# patch VERB DIRECTORY [ARGUMENT]...: what `cove eval` does with the repository in a sandbox, as root.
#   unpack              makes it of the archive on stdin
#   checkout COMMIT     it came with the template; "": as it is
#   keep                what setting up changed in its files is none of the patch's
#   apply PATHSPEC...   applies d/patch. What of it is about these, which judge it, or about files of d/tests, is put back
#                       and printed; then d/tests is applied. 91: it can't be, 92: d/tests can't be
set -e
umask 022
export HOME=/root GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
git() { command git -c user.name=cove -c user.email=cove@localhost -c core.hooksPath=/dev/null "$@"; }
d=/tmp/.cove-eval
apply() { git apply --index --whitespace=nowarn "$@" $d/patch; }

verb=$1
[ "$verb" != unpack ] || mkdir -p "$2"
cd "$2"
shift 2
case $verb in
unpack)
    tar -xf -
    git init -q
    git add -A -f
    git commit -q --allow-empty -m base
    ;;
checkout)
    git rev-parse -q --verify HEAD >/dev/null
    [ -z "$1" ] || git checkout -q -f --detach "$1" --
    ;;
keep)
    git add -u
    git commit -q --allow-empty -m setup
    ;;
apply)
    trap 'rm -rf $d' EXIT
    # A fork has other inodes.
    git update-index -q --refresh || :
    apply 2>$d/why || apply --recount -C1 2>/dev/null || { cat $d/why >&2; exit 91; }
    git diff --cached --name-only --no-renames -z HEAD -- "$@" >$d/back
    if [ -s $d/tests ]; then
        git apply --numstat -z $d/tests >$d/names || exit 92
        sed -z 's/^[^\t]*\t[^\t]*\t/:(top,literal)/' $d/names |
            xargs -0 -r sh -c 'git -c core.quotePath=false diff --cached --name-only --no-renames -z HEAD -- "$@"' sh >>$d/back
    fi
    [ ! -s $d/back ] ||
        git --literal-pathspecs restore --source=HEAD --staged --worktree --pathspec-from-file=$d/back --pathspec-file-nul
    [ ! -s $d/tests ] || git apply --whitespace=nowarn $d/tests || exit 92
    sort -zu $d/back | tr '\0' '\n'
    ;;
esac
