#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rebase COPY BASE ONTO: a pack on stdin, then what follows BASE is put onto ONTO, or nothing is.
set -e
cd "$1"
git index-pack --stdin --fix-thin > /dev/null
said=$(git rebase -q --onto "$3" "$2" 2>&1) || {
    both=$(git diff --name-only --diff-filter=U | head -n 1)
    git rebase --abort 2> /dev/null || :
    [ -z "$both" ] || said="both changed $both, and nothing was rebased"
    echo "$said" >&2
    exit 1
}
