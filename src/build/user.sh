#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# user NAME SHELL: makes the account, and prints "cove-made:"; "cove-same:": it was there.
if id -u "$1" >/dev/null 2>&1; then printf cove-same:; exit; fi
if command -v useradd >/dev/null; then useradd --create-home --shell "$2" -- "$1" >&2
else adduser -D -s "$2" "$1" >&2; fi && printf cove-made:
