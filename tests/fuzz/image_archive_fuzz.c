/* SPDX-License-Identifier: Apache-2.0 */
/* An archive of an image: opened (unpacked, indexed), and what it names is read; what comes is never more than its file
 * holds. */
#include "image/apply/archive.h"

#include "base/fd.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static int count(void *ctx, const void *p, size_t n, struct err *err)
{
    (void)p, (void)err;
    *(uint64_t *)ctx += n;
    return 0;
}

static void read_layers(struct archive_image *a, const struct manifest *m)
{
    struct err err;
    for (size_t i = 0; i < m->n_layers; i++) {
        uint64_t got = 0, size = 0;
        if (archive_blob(a, &m->layers[i], count, &got, &err) == 0 &&
            (archive_blob_size(a, &m->layers[i], &size, &err) < 0 || got != size))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct platform want = {.os = "linux", .arch = "amd64"};
    AUTO_CLOSE int fd = memfd_create("archive", MFD_CLOEXEC), spool = memfd_create("spool", MFD_CLOEXEC);
    AUTO_BUF struct buf text = BUF_INIT(MANIFEST_BYTES_MAX + 1);
    AUTO(archive_image_free) struct archive_image *a = NULL;
    const struct archive_config config = {.fd = fd, .spool = spool, .spool_max = 4 << 20, .canceled = never};
    struct manifest m;
    struct err err = {.code = ERR_OK};
    if (fd < 0 || spool < 0 || fd_write_all(fd, data, size) < 0)
        abort();
    if (archive_image_open(&config, &a, &err) < 0) {
        if (err.code == ERR_OK || !err.msg[0])
            abort();
        return 0;
    }
    bool docker = archive_is_docker(a);
    if (archive_read_text(a, docker ? "manifest.json" : "index.json", &text, &err) < 0)
        return 0;
    int r = docker ? manifest_parse_docker(buf_str(&text), "", &m, &err)
                   : manifest_parse(buf_str(&text), NULL, &want, "", &m, &err);
    if (r == 0) {
        read_layers(a, &m);
        manifest_fini(&m);
    }
    return 0;
}
