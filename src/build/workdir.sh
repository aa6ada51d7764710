#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# workdir PATH USER WORKDIR: makes it, and prints "cove-made:" and its path; "cove-same:": it was there.
case $1 in /*) t=$1 ;; *) t=${3:-/}/$1 ;; esac
if [ -d "$t" ]; then cd "$t" && printf 'cove-same:%s' "$(pwd)"; exit; fi
new=$t
while [ ! -d "$(dirname "$new")" ]; do new=$(dirname "$new"); done
mkdir -p "$t" && chown -R "$2:" "$new" && cd "$t" && printf 'cove-made:%s' "$(pwd)"
