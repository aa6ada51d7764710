/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /files/compose: joins files into one and removes them.
 *
 * Steps, one operation of the core at a time but for 3, where a read feeds the write:
 *  1. every source is looked at: it must be a regular file, and not the destination
 *  2. a temporary file beside the destination is opened
 *  3. the sources are copied into it, in order
 *  4. it replaces the destination
 *  5. the sources are removed
 * What goes wrong in 3 or 4 removes the temporary file and leaves all else as it was.
 */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/envd_entry.h"
#include "base/id.h"

enum { SOURCES_MAX = 1024, TOKEN = 16 };

struct compose {
    struct str *sources;
    size_t n_sources, i; /* i: the one that is looked at, copied or removed */
    struct str destination, destination_path, temporary;
    struct file_call *read, *write;
    struct buf waiting; /* read, and not yet taken by the write */
    size_t unacked;
    bool ready, all_read;
    struct buf reply;
    struct err err; /* why it failed, while the temporary file is being removed */
};

/* Each a step: one action that nothing was changed for yet. */
static void look_at_next(struct call *c);
static void read_next(struct call *c);
static void remove_next(struct call *c);

static void envd_compose_cleanup(struct call *c)
{
    struct compose *m = c->state;
    file_call_cancel(TAKE_PTR(m->read));
    file_call_cancel(TAKE_PTR(m->write));
    buf_fini(&m->waiting);
    buf_fini(&m->reply);
}

/* ---- failing ---- */

static void on_temporary_removed(struct call *c, const struct file_entry *entry UNUSED, const struct err *err UNUSED)
{
    struct compose *m = c->state;
    call_fail_err(c, &m->err);
}

static void envd_compose_fail(struct call *c, const struct err *err)
{
    struct compose *m = c->state;
    if (call_lost(c, err->code))
        return;
    m->err = *err;
    file_call_cancel(TAKE_PTR(m->read));
    file_call_cancel(TAKE_PTR(m->write));
    if (file_remove(c->sandbox, &c->actor, c->user, m->temporary, CALL_FILE_END(c, on_temporary_removed)) < 0)
        call_fail_err(c, &m->err);
}

/* ---- 3: copying ---- */

/* Gives the write what waits; when all of it went, the read may go on. */
static void envd_compose_push(struct call *c)
{
    struct compose *m = c->state;
    while (m->ready && buf_len(&m->waiting)) {
        size_t n = file_write_data(m->write, buf_str(&m->waiting));
        m->ready = n > 0;
        buf_consume(&m->waiting, n);
    }
    if (buf_len(&m->waiting))
        return;
    if (m->read && m->unacked)
        file_read_ack(m->read, m->unacked);
    m->unacked = 0;
    if (m->all_read)
        file_write_eof(m->write);
}

static void envd_compose_on_data(void *ctx, struct str bytes)
{
    struct call *c = ctx;
    struct compose *m = c->state;
    buf_append_str(&m->waiting, bytes);
    m->unacked += bytes.n;
    envd_compose_push(c);
}

static void on_read_end(void *ctx, const struct err *err)
{
    struct call *c = ctx;
    struct compose *m = c->state;
    m->read = NULL;
    m->unacked = 0;
    if (err) {
        envd_compose_fail(c, err);
        return;
    }
    m->i++;
    call_step(c, read_next);
}

static void read_next(struct call *c)
{
    static const struct file_read_ops ops = {.on_data = envd_compose_on_data, .on_end = on_read_end};
    struct compose *m = c->state;
    struct err err;
    if (m->i == m->n_sources) {
        m->all_read = true;
        envd_compose_push(c);
    } else if (file_read(c->sandbox, &c->actor, c->user, m->sources[m->i], 0, UINT64_MAX, &ops, c, &m->read, &err) <
               0) {
        envd_compose_fail(c, &err);
    }
}

static void on_write_ready(void *ctx)
{
    struct call *c = ctx;
    struct compose *m = c->state;
    bool first = !m->read && m->i == 0 && !m->all_read;
    m->ready = true;
    if (first)
        call_step(c, read_next);
    else
        envd_compose_push(c);
}

/* ---- 4 and 5 ---- */

static void on_source_removed(struct call *c, const struct file_entry *entry UNUSED, const struct err *err UNUSED)
{
    struct compose *m = c->state;
    /* the destination is complete: a source that stays is no failure of that */
    m->i++;
    call_step(c, remove_next);
}

static void remove_next(struct call *c)
{
    struct compose *m = c->state;
    if (m->i == m->n_sources)
        call_json(c, 200, buf_str(&m->reply));
    else
        call_ok(c, file_remove(c->sandbox, &c->actor, c->user, m->sources[m->i], CALL_FILE_END(c, on_source_removed)));
}

static void on_moved(struct call *c, const struct file_entry *entry, const struct err *err)
{
    struct compose *m = c->state;
    if (err) {
        envd_compose_fail(c, err);
        return;
    }
    entry_append_uploaded(&m->reply, entry);
    m->i = 0;
    call_step(c, remove_next);
}

static void envd_compose_replace(struct call *c)
{
    const struct compose *m = c->state;
    if (file_move(c->sandbox, &c->actor, c->user, m->temporary, m->destination, CALL_FILE_END(c, on_moved)) < 0)
        envd_compose_fail(c, &c->err);
}

static void envd_compose_on_written(void *ctx, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct call *c = ctx;
    struct compose *m = c->state;
    m->write = NULL;
    if (err)
        envd_compose_fail(c, err);
    else
        call_step(c, envd_compose_replace);
}

/* ---- 1 and 2 ---- */

static void open_temporary(struct call *c)
{
    static const struct file_write_ops ops = {on_write_ready, envd_compose_on_written};
    struct compose *m = c->state;
    m->i = 0;
    call_ok(c, file_write(c->sandbox, &c->actor, c->user, m->temporary, NULL, 0, &ops, c, &m->write, &c->err));
}

static void on_source(struct call *c, const struct file_entry *entry, const struct err *err)
{
    struct compose *m = c->state;
    struct str source = m->sources[m->i];
    if (err && err->code == ERR_NOT_FOUND) {
        call_fail(c, 404, "source file not found: %.*s", STR_ARG(source));
    } else if (err) {
        call_fail_err(c, err);
    } else if (entry->type != WIRE_FILE_REGULAR) {
        call_fail(c, 400, "source path is not a regular file: %.*s", STR_ARG(source));
    } else if (str_eq(entry->path, m->destination_path)) {
        call_fail(c, 400, "source path \"%.*s\" cannot be the same as destination", STR_ARG(source));
    } else {
        m->i++;
        call_step(c, look_at_next);
    }
}

static void look_at_next(struct call *c)
{
    struct compose *m = c->state;
    if (m->i == m->n_sources)
        call_step(c, open_temporary);
    else
        call_ok(c, file_stat(c->sandbox, &c->actor, c->user, m->sources[m->i], CALL_FILE_END(c, on_source)));
}

/* A destination that exists has a resolved path, by which a source is recognised however it is written. */
static void on_destination(struct call *c, const struct file_entry *entry, const struct err *err)
{
    struct compose *m = c->state;
    if (err && err->code != ERR_NOT_FOUND) {
        call_fail_err(c, err);
        return;
    }
    if (entry)
        m->destination_path = arena_str(http_arena(c->req), entry->path);
    call_step(c, look_at_next);
}

void envd_compose(struct call *c)
{
    struct arena *arena = http_arena(c->req);
    const struct str *sources = NULL;
    struct str destination = STR(""), user = STR("");
    char token[TOKEN + 1];
    struct compose *m;
    size_t n = 0;
    c->body_error = "invalid request body: ";
    if (!CALL_WANTS(c, JSON_WANT_STRS("source_paths", &sources, &n), JSON_WANT_STR("destination", &destination),
                    JSON_WANT_STR("username", &user)))
        return;
    if (n == 0 || n > SOURCES_MAX) {
        call_fail(c, 400, n ? "there are too many source_paths" : "source_paths must not be empty");
        return;
    }
    if (destination.n == 0) {
        call_fail(c, 400, "destination is required");
        return;
    }
    m = arena_alloc(arena, sizeof(*m));
    m->sources = arena_alloc(arena, n * sizeof(*m->sources));
    m->n_sources = n;
    for (size_t i = 0; i < n; i++)
        m->sources[i] = arena_str(arena, sources[i]);
    m->destination = arena_str(arena, destination);
    id_token(token, TOKEN);
    m->temporary = str_of(arena_printf(arena, "%.*s.compose-%s.tmp", STR_ARG(m->destination), token));
    buf_init(&m->waiting, 2 * WIRE_WINDOW);
    buf_init(&m->reply, BODY_MAX);
    c->user = arena_str(arena, user);
    c->state = m;
    c->cleanup = envd_compose_cleanup;
    call_ok(c, file_stat(c->sandbox, &c->actor, c->user, m->destination, CALL_FILE_END(c, on_destination)));
}
