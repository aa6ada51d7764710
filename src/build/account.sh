#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# account SHELL SYSTEMCTL: what an image gets before its first step: the account that everything runs as, and what starts
# its services, where the image has what that needs.
if command -v awk && command -v ln && command -v mkdir && mkdir -p /usr/local/bin; then
  printf %s "$2" >/usr/local/bin/systemctl && chmod 755 /usr/local/bin/systemctl &&
    ln -sf systemctl /usr/local/bin/journalctl || exit 1
  [ -e /usr/bin/systemctl ] || ln -s ../local/bin/systemctl /usr/bin/systemctl
fi >/dev/null
if ! id -u user >/dev/null 2>&1; then
  if command -v useradd >/dev/null; then useradd --create-home --shell "$1" user
  elif command -v adduser >/dev/null; then adduser -D -s "$1" user
  else echo 'user:x:1000:1000::/home/user:'"$1" >>/etc/passwd && echo 'user:x:1000:' >>/etc/group &&
    mkdir -p /home/user && chown 1000:1000 /home/user
  fi || exit 1
fi
mkdir -p /home/user /tmp && chown user: /home/user && chmod 1777 /tmp || exit 1
if [ -d /etc/sudoers.d ]; then
  echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/user && chmod 440 /etc/sudoers.d/user
fi
