/* SPDX-License-Identifier: Apache-2.0 */
#include "image/link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { FEED_WAIT_MS = 200 };

static int lost(struct err *err)
{
    return err_set(err, ERR_INTERNAL, "the process that unpacks ended unexpectedly: out of memory?");
}

/* 1: a note; 0: none now; -1: the other half is gone. */
static int feed_receive(struct image_feed *f, struct link_note *ret_note, int flags)
{
    ssize_t n = recv(f->notes_fd, ret_note, sizeof(*ret_note), flags);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n != sizeof(*ret_note))
        return -1;
    ret_note->text[sizeof(ret_note->text) - 1] = '\0';
    return 1;
}

static enum err_code feed_code_of(uint32_t code)
{
    return code > ERR_OK && code < ERR_CODE_MAX ? (enum err_code)code : ERR_INTERNAL;
}

/* Warnings are passed on; another kind than `until` is an error, and its text the reason. */
static int feed_take(struct image_feed *f, const struct link_note *note, enum note_kind until, struct err *err)
{
    if (note->kind == NOTE_WARNING) {
        f->warn(f->ctx, note->text);
        return 0;
    }
    if (note->kind == NOTE_FAILED)
        return err_set(err, feed_code_of(note->code), "%s", note->text);
    if (note->kind != (uint32_t)until)
        return lost(err);
    f->entries = note->entries;
    return 1;
}

static int feed_await(struct image_feed *f, enum note_kind until, struct err *err)
{
    for (;;) {
        struct link_note note;
        struct pollfd p = {.fd = f->notes_fd, .events = POLLIN};
        if (poll(&p, 1, FEED_WAIT_MS) < 0 && errno != EINTR)
            return lost(err);
        if (f->canceled(f->ctx))
            return err_set(err, ERR_CANCELED, "canceled");
        int r = feed_receive(f, &note, MSG_DONTWAIT);
        if (r < 0)
            return lost(err);
        if (r > 0 && (r = feed_take(f, &note, until, err)) != 0)
            return r < 0 ? -1 : 0;
    }
}

/* What is there already, so that the socket never fills. */
static int feed_drain(struct image_feed *f, struct err *err)
{
    struct link_note note;
    while (feed_receive(f, &note, MSG_DONTWAIT) > 0)
        if (feed_take(f, &note, NOTE_WARNING, err) < 0)
            return -1;
    return 0;
}

static int send_frame(struct image_feed *f, enum link_kind kind, const void *p, size_t n, struct err *err)
{
    struct link_frame frame = {.kind = (uint32_t)kind, .n = (uint32_t)n};
    struct iovec parts[2] = {{&frame, sizeof(frame)}, {(void *)(uintptr_t)p, n}}, *part = parts;
    size_t left = sizeof(frame) + n;
    while (left > 0) {
        ssize_t sent = writev(f->data_fd, part, (int)(parts + 2 - part));
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) /* its last note says why */
            return feed_await(f, NOTE_FAILED, err) < 0 ? -1 : lost(err);
        left -= (size_t)sent;
        for (size_t done = (size_t)sent; done > 0 && part < parts + ARRAY_SIZE(parts);) {
            size_t step = MIN(done, part->iov_len);
            part->iov_base = (char *)part->iov_base + step;
            part->iov_len -= step;
            done -= step;
            part += part->iov_len == 0;
        }
    }
    return kind == LINK_DATA ? feed_drain(f, err) : 0; /* the answer to an end is awaited */
}

int feed_layer(struct image_feed *f, struct err *err)
{
    return send_frame(f, LINK_LAYER, NULL, 0, err);
}

int feed_data(struct image_feed *f, const void *p, size_t n, struct err *err)
{
    const char *from = p;
    for (size_t part; n > 0; from += part, n -= part) {
        part = MIN(n, (size_t)LINK_DATA_MAX);
        if (send_frame(f, LINK_DATA, from, part, err) < 0)
            return -1;
    }
    return 0;
}

int feed_layer_end(struct image_feed *f, struct err *err)
{
    return send_frame(f, LINK_LAYER_END, NULL, 0, err) < 0 ? -1 : feed_await(f, NOTE_LAYER, err);
}

int feed_finish(struct image_feed *f, struct err *err)
{
    return send_frame(f, LINK_FINISH, NULL, 0, err) < 0 ? -1 : feed_await(f, NOTE_FINISHED, err);
}
