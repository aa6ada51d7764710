/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/envd_entry.h"
#include "api/kit/json_write.h"
#include "base/clock.h"

#include <inttypes.h>
#include <sys/stat.h>

/* What clients of E2B know of an empty directory is ext4's. Others, btrfs for one, give it no size. */
enum { DIRECTORY_LEAST = 4096 };

void entry_permissions(uint32_t st_mode, char ret_text[static ENTRY_PERMISSIONS_MAX])
{
    static const char rwx[] = "rwxrwxrwx";
    size_t n = 0;
    switch (st_mode & S_IFMT) {
    case S_IFDIR:
        ret_text[n++] = 'd';
        break;
    case S_IFLNK:
        ret_text[n++] = 'L';
        break;
    case S_IFBLK:
        ret_text[n++] = 'D';
        break;
    case S_IFCHR:
        ret_text[n++] = 'D';
        break;
    case S_IFIFO:
        ret_text[n++] = 'p';
        break;
    case S_IFSOCK:
        ret_text[n++] = 'S';
        break;
    default:
        break;
    }
    if (st_mode & S_ISUID)
        ret_text[n++] = 'u';
    if (st_mode & S_ISGID)
        ret_text[n++] = 'g';
    if ((st_mode & S_IFMT) == S_IFCHR)
        ret_text[n++] = 'c';
    if (st_mode & S_ISVTX)
        ret_text[n++] = 't';
    if (n == 0)
        ret_text[n++] = '-';
    for (int i = 0; i < 9; i++)
        ret_text[n++] = st_mode & (1u << (8 - i)) ? rwx[i] : '-';
    ret_text[n] = '\0';
}

/* Seconds with 0, 3, 6 or 9 digits of fraction, as protobuf writes a Timestamp. */
static void append_timestamp(struct buf *b, uint64_t ns)
{
    char text[CLOCK_TEXT_MAX];
    uint32_t fraction = (uint32_t)(ns % 1000000000);
    clock_format(ns / 1000000000 * USEC_PER_SEC, 0, text);
    text[strcspn(text, "Z")] = '\0';
    buf_printf(b, "\"%s", text);
    if (fraction % 1000)
        buf_printf(b, ".%09" PRIu32, fraction);
    else if (fraction % 1000000)
        buf_printf(b, ".%06" PRIu32, fraction / 1000);
    else if (fraction)
        buf_printf(b, ".%03" PRIu32, fraction / 1000000);
    buf_append_cstr(b, "Z\"");
}

static void append_field(struct buf *b, const char *name, struct str value)
{
    if (value.n)
        json_put_str(b, name, value);
}

static void envd_entry_append_metadata(struct buf *b, const struct file_entry *entry)
{
    if (entry->n_metadata)
        json_put_pairs(b, "metadata", entry->metadata, entry->n_metadata);
}

void entry_append(struct buf *b, const struct file_entry *entry, bool brief)
{
    char permissions[ENTRY_PERMISSIONS_MAX];
    uint64_t size = entry->type == WIRE_FILE_DIRECTORY ? MAX(entry->size, (uint64_t)DIRECTORY_LEAST) : entry->size;
    json_open(b, "name", entry->name);
    if (entry->type == WIRE_FILE_REGULAR)
        buf_append_cstr(b, ",\"type\":\"FILE_TYPE_FILE\"");
    else if (entry->type == WIRE_FILE_DIRECTORY)
        buf_append_cstr(b, ",\"type\":\"FILE_TYPE_DIRECTORY\"");
    append_field(b, "path", entry->path);
    if (brief) {
        buf_append_char(b, '}');
        return;
    }
    if (size)
        buf_printf(b, ",\"size\":\"%" PRIu64 "\"", size);
    if (entry->mode & 0777)
        buf_printf(b, ",\"mode\":%u", entry->mode & 0777);
    entry_permissions(entry->link_mode, permissions);
    append_field(b, "permissions", str_of(permissions));
    append_field(b, "owner", entry->owner);
    append_field(b, "group", entry->group);
    buf_append_cstr(b, ",\"modifiedTime\":");
    append_timestamp(b, entry->mtime_ns);
    if (entry->is_link)
        json_put_str(b, "symlinkTarget", entry->target);
    envd_entry_append_metadata(b, entry);
    buf_append_char(b, '}');
}

void entry_append_uploaded(struct buf *b, const struct file_entry *entry)
{
    json_open(b, "path", entry->path);
    json_put_str(b, "name", entry->name);
    json_put_text(b, "type", "file");
    envd_entry_append_metadata(b, entry);
    buf_append_char(b, '}');
}
