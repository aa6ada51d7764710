/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a file system of a kind in a file, mounted where no other process sees it. It is gone when the test's
 * process is. */
#pragma once

#include "base/def.h"

struct test_disk {
    char top[64]; /* holds the file and the directory that is mounted on */
    char dir[96]; /* the root of the file system */
    int file, device;
    char device_name[32];
};

enum { TEST_DISK_MIB = 512 };

/*
 * kind: "btrfs", with simple quotas on; "xfs"; "xfs with quotas", those of projects. False: not here; it has said why.
 * The calling process has a mount table of its own afterwards.
 */
bool test_disk_open(struct test_disk *d, const char *kind);
void test_disk_close(struct test_disk *d);
void test_disk_absent(void **state); /* a test that is skipped, in place of those on a disk that can't be had */
