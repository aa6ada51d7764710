/* SPDX-License-Identifier: Apache-2.0 */
#include "image/apply/archive.h"
#include "base/fd.h"
#include "base/mem.h"
#include "image/apply/inflate.h"
#include "image/apply/tarindex.h"

#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 256 * 1024 };

struct archive_image {
    struct archive_config config;
    int fd; /* borrowed: the archive's, or the spool */
    struct tarindex *index;
    char *room;
};

/* ---- what can't be read at will ---- */

static int to_spool(void *ctx, const void *p, size_t n, struct err *err)
{
    struct archive_image *a = ctx;
    int r = fd_write_all(a->config.spool, p, n);
    return r < 0 ? err_errno(err, r, "unpack the archive") : 0;
}

static int spool(struct archive_image *a, struct err *err)
{
    AUTO(inflate_free) struct inflate *f = inflate_new(PACKING_ANY, a->config.spool_max, to_spool, a);
    for (;;) {
        ssize_t n = read(a->config.fd, a->room, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "read the archive");
        if (a->config.canceled(a->config.ctx))
            return err_set(err, ERR_CANCELED, "canceled");
        if (n == 0)
            break;
        if (inflate_push(f, a->room, (size_t)n, err) < 0)
            return -1;
    }
    a->fd = a->config.spool;
    return inflate_end(f, err);
}

static bool is_packed(int fd)
{
    unsigned char p[4] = {0};
    return pread(fd, p, sizeof(p), 0) == sizeof(p) &&
           ((p[0] == 0x1f && p[1] == 0x8b) || memcmp(p, "\x28\xb5\x2f\xfd", 4) == 0);
}

int archive_image_open(const struct archive_config *config, struct archive_image **ret_archive, struct err *err)
{
    static const struct tarindex_limits limits = {.files = ARCHIVE_FILES_MAX, .names_bytes = ARCHIVE_NAMES_BYTES};
    struct stat st;
    AUTO(archive_image_free) struct archive_image *a = mem_new(struct archive_image);
    a->config = *config;
    a->fd = config->fd;
    a->room = mem_alloc(CHUNK);
    if (fstat(config->fd, &st) < 0)
        return err_errno(err, errno, "look at the archive");
    bool whole = S_ISREG(st.st_mode);
    if (!whole && !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode))
        return err_set(err, ERR_INVALID_ARGUMENT, "the archive's descriptor is neither a file nor a pipe");
    if (whole && lseek(config->fd, 0, SEEK_SET) < 0)
        return err_errno(err, errno, "read the archive");
    if ((!whole || is_packed(config->fd)) && spool(a, err) < 0)
        return -1;
    if (tarindex_open(a->fd, &limits, &a->index, err) < 0)
        return -1;
    *ret_archive = TAKE_PTR(a);
    return 0;
}

void archive_image_free(struct archive_image *a)
{
    if (!a)
        return;
    tarindex_free(a->index);
    MEM_FREE(a->room, a);
}

static bool has(const struct archive_image *a, const char *name)
{
    uint64_t offset, size;
    return tarindex_find(a->index, name, &offset, &size);
}

bool archive_is_docker(const struct archive_image *a)
{
    return !(has(a, "index.json") && has(a, "oci-layout")) && has(a, "manifest.json");
}

/* ---- reading ---- */

static int stream(struct archive_image *a, uint64_t offset, uint64_t size, archive_fn fn, void *ctx, struct err *err)
{
    while (size > 0) {
        ssize_t n = pread(a->fd, a->room, (size_t)MIN(size, (uint64_t)CHUNK), (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "the archive became shorter while it was read");
        if (fn(ctx, a->room, (size_t)n, err) < 0)
            return -1;
        offset += (uint64_t)n;
        size -= (uint64_t)n;
    }
    return 0;
}

static void name_of(const struct image_blob *blob, char ret_name[static REF_NAME_MAX])
{
    if (blob->name[0])
        (void)snprintf(ret_name, REF_NAME_MAX, "%s", blob->name);
    else
        (void)snprintf(ret_name, REF_NAME_MAX, "blobs/sha256/%s", blob->digest + strlen("sha256:"));
}

static int archive_find(struct archive_image *a, const char *name, uint64_t *ret_offset, uint64_t *ret_size,
                        struct err *err)
{
    if (tarindex_find(a->index, name, ret_offset, ret_size))
        return 0;
    return err_set(err, ERR_NOT_FOUND, "the archive holds no %.150s: is it an OCI layout or a docker-archive?", name);
}

int archive_read_text(struct archive_image *a, const char *name, struct buf *ret_text, struct err *err)
{
    uint64_t offset, size;
    if (archive_find(a, name, &offset, &size, err) < 0)
        return -1;
    if (size > MANIFEST_BYTES_MAX)
        return err_set(err, ERR_OUT_OF_RANGE, "%.150s in the archive is larger than %d bytes", name,
                       MANIFEST_BYTES_MAX);
    char *to = buf_reserve(ret_text, (size_t)size + 1);
    if (!to)
        return err_set(err, ERR_OUT_OF_RANGE, "%.150s in the archive is too large", name);
    for (uint64_t done = 0; done < size;) {
        ssize_t n = pread(a->fd, to + done, (size_t)(size - done), (off_t)(offset + done));
        if (n <= 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "the archive became shorter while it was read");
        done += (uint64_t)n;
    }
    buf_commit(ret_text, (size_t)size);
    return 0;
}

int archive_blob_size(struct archive_image *a, const struct image_blob *blob, uint64_t *ret_size, struct err *err)
{
    char name[REF_NAME_MAX];
    uint64_t offset;
    name_of(blob, name);
    return archive_find(a, name, &offset, ret_size, err);
}

int archive_blob(struct archive_image *a, const struct image_blob *blob, archive_fn fn, void *ctx, struct err *err)
{
    char name[REF_NAME_MAX];
    uint64_t offset, size;
    name_of(blob, name);
    if (archive_find(a, name, &offset, &size, err) < 0)
        return -1;
    if (blob->size != UINT64_MAX && blob->size != size)
        return err_set(err, ERR_INVALID_ARGUMENT, "%.100s has %llu bytes, its manifest says %llu", name,
                       (unsigned long long)size, (unsigned long long)blob->size);
    return stream(a, offset, size, fn, ctx, err);
}
