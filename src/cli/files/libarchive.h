/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libarchive, loaded when it is first called: it brings libxml2 and ICU, and to load them took two fifths of each
 * start of a command line that seldom packs anything. Without the library on this machine, the first call ends the
 * program.
 */
#pragma once

#include <archive.h>
#include <archive_entry.h>

/* clang-format off */
#define LIBARCHIVE(F) \
    F(entry_clear) F(entry_filetype) F(entry_free) F(entry_hardlink) F(entry_new) F(entry_pathname) \
    F(entry_perm) F(entry_set_filetype) F(entry_set_gid) F(entry_set_gname) F(entry_set_hardlink) \
    F(entry_set_mtime) F(entry_set_pathname) F(entry_set_perm) F(entry_set_size) F(entry_set_symlink) \
    F(entry_set_uid) F(entry_set_uname) F(entry_size) F(entry_symlink) F(errno) F(error_string) F(read_data) \
    F(read_data_block) F(read_disk_descend) F(read_disk_new) F(read_disk_open) F(read_disk_set_behavior) \
    F(read_disk_set_symlink_physical) F(read_free) F(read_new) F(read_next_header) F(read_next_header2) \
    F(read_open_fd) F(read_support_format_gnutar) F(read_support_format_tar) F(write_add_filter_gzip) \
    F(write_close) F(write_data) F(write_data_block) F(write_disk_new) F(write_disk_set_options) \
    F(write_finish_entry) F(write_free) F(write_header) F(write_new) F(write_open_fd) \
    F(write_set_bytes_in_last_block) F(write_set_bytes_per_block) F(write_set_format_pax_restricted) \
    F(write_set_options)
/* clang-format on */

struct libarchive {
#define LIBARCHIVE_MEMBER(name) __typeof__(archive_##name) *archive_##name;
    LIBARCHIVE(LIBARCHIVE_MEMBER)
#undef LIBARCHIVE_MEMBER
};

const struct libarchive *la(void);

/* Of a library that dlopen() gave, or NULL: then, or where there is no such symbol, it says so and aborts. */
void *library_symbol(void *library, const char *name);
