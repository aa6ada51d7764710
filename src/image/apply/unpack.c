/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "image/apply/apply.h"
#include "image/job.h"
#include "image/link.h"

#include <sys/socket.h>
#include <unistd.h>

struct unpack {
    struct unpack_config config;
    struct apply *apply;
    unsigned warnings;
    char *room; /* LINK_DATA_MAX bytes */
};

static void unpack_note(struct unpack *u, enum note_kind kind, enum err_code code, const char *text)
{
    struct link_note n = {.kind = (uint32_t)kind,
                          .code = (uint32_t)code,
                          .bytes = apply_bytes(u->apply),
                          .entries = apply_entries(u->apply)};
    (void)snprintf(n.text, sizeof(n.text), "%s", text);
    (void)send(u->config.notes_fd, &n, sizeof(n), MSG_NOSIGNAL);
}

static void unpack_on_warning(void *ctx, const char *text)
{
    struct unpack *u = ctx;
    if (u->warnings++ < JOB_WARNINGS_MAX)
        unpack_note(u, NOTE_WARNING, ERR_OK, text);
}

static int unpack_read_all(int fd, void *p, size_t n)
{
    char *to = p;
    while (n > 0) {
        ssize_t got = read(fd, to, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EPIPE;
        to += got;
        n -= (size_t)got;
    }
    return 0;
}

static int read_frame(struct unpack *u, struct link_frame *ret_frame)
{
    struct link_frame f;
    int r = unpack_read_all(u->config.data_fd, &f, sizeof(f));
    if (r < 0)
        return r;
    if (f.kind == LINK_DATA ? f.n == 0 || f.n > LINK_DATA_MAX : f.n != 0)
        return -EPROTO;
    *ret_frame = f;
    return 0;
}

static ssize_t read_layer(void *ctx, const void **ret_p)
{
    struct unpack *u = ctx;
    struct link_frame f;
    int r = read_frame(u, &f);
    if (r < 0)
        return r;
    if (f.kind == LINK_LAYER_END)
        return 0;
    if (f.kind != LINK_DATA)
        return -EPROTO;
    r = unpack_read_all(u->config.data_fd, u->room, f.n);
    *ret_p = u->room;
    return r < 0 ? r : (ssize_t)f.n;
}

static int image_unpack_run(struct unpack *u, struct err *err)
{
    for (;;) {
        struct link_frame f;
        int r = read_frame(u, &f);
        if (r == 0 && f.kind == LINK_FINISH)
            return 0;
        if (r == 0 && f.kind != LINK_LAYER)
            r = -EPROTO;
        if (r < 0)
            return err_errno(err, r, "read from the process that fetches");
        if (apply_layer(u->apply, read_layer, u, err) < 0)
            return -1;
        unpack_note(u, NOTE_LAYER, ERR_OK, "");
    }
}

int unpack_run(const struct unpack_config *config)
{
    struct unpack u = {.config = *config, .room = mem_alloc(LINK_DATA_MAX)};
    const struct apply_config apply = {.root_fd = config->root_fd,
                                       .max_bytes = config->max_bytes,
                                       .max_entries = config->max_entries,
                                       .warn = unpack_on_warning,
                                       .ctx = &u};
    struct err err;
    u.apply = apply_new(&apply);
    int r = image_unpack_run(&u, &err);
    if (r == 0)
        unpack_note(&u, NOTE_FINISHED, ERR_OK, "");
    else
        unpack_note(&u, NOTE_FAILED, err.code, err.msg);
    apply_free(u.apply);
    mem_free(u.room);
    return r == 0 ? 0 : 1;
}
