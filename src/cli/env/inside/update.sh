#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# update COPY NAME COMMIT: a pack on stdin, then the branch cove/NAME is at COMMIT.
set -e
cd "$1"
git index-pack --stdin --fix-thin > /dev/null
git checkout -q -f -B "cove/$2" "$3"
