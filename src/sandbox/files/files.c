/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on files that are one request and one answer, and lists. */
#include "sandbox/files/files.h"
#include "base/mem.h"
#include "base/path.h"
#include "sandbox/files/file_call.h"
#include "sandbox/record/record.h"

bool entry_get(struct wire_reader *r, struct wire_entry *ret)
{
    struct file_entry *e = &ret->e;
    *e = (struct file_entry){.name = wire_get_str(r)};
    e->path = wire_get_str(r);
    uint8_t type = wire_get_u8(r);
    e->type = (enum wire_file_type)type;
    e->mode = wire_get_u32(r);
    e->link_mode = wire_get_u32(r);
    e->size = wire_get_u64(r);
    e->uid = wire_get_u32(r);
    e->gid = wire_get_u32(r);
    e->owner = wire_get_str(r);
    e->group = wire_get_str(r);
    e->mtime_ns = wire_get_u64(r);
    uint8_t is_link = wire_get_u8(r);
    e->is_link = is_link;
    e->target = wire_get_str(r);
    uint32_t n = wire_get_count(r, 2 * sizeof(uint32_t));
    for (uint32_t i = 0; i < n && !r->bad; i++) {
        struct pair pair = {.key = wire_get_str(r)};
        pair.value = wire_get_str(r);
        if (i < ENTRY_METADATA_MAX)
            ret->metadata[i] = pair;
    }
    e->metadata = ret->metadata;
    e->n_metadata = MIN(n, (uint32_t)ENTRY_METADATA_MAX);
    if (r->bad)
        return true;
    return type <= WIRE_FILE_DIRECTORY && is_link <= 1 && n <= ENTRY_METADATA_MAX && e->path.n && e->path.p[0] == '/' &&
           !str_has_nul(e->path) && !str_has_nul(e->name);
}

struct file_call *file_call_new(struct sandbox *sb, enum event_kind kind, uint64_t cause, void *ctx)
{
    struct file_call *c = mem_new(struct file_call);
    *c = (struct file_call){
        .sb = sandbox_ref(sb), .kind = kind, .cause = cause, .ctx = ctx, .rest = BUF_INIT(2 * WIRE_PAYLOAD_MAX)};
    list_init(&c->events);
    loop_job_init(&c->job, NULL);
    return c;
}

void file_call_free(struct file_call *c)
{
    if (c->busy) {
        c->gone = true;
        return;
    }
    while (!list_empty(&c->events)) {
        struct list *it = c->events.next;
        list_remove(it);
        mem_free(it);
    }
    sandbox_unref(c->sb);
    loop_job_cancel(&c->job);
    buf_fini(&c->rest);
    mem_free(c);
}

int file_call_open(struct file_call *c, struct buf *request, const struct stream_ops *ops, struct file_call **ret_call,
                   struct err *err)
{
    if (stream_open(c->sb->session, request, ops, c, SESSION_UNARY_MS, &c->stream, err) < 0) {
        file_record_end(c, err);
        file_call_free(c);
        return -1;
    }
    *ret_call = c;
    return 0;
}

void file_call_cancel(struct file_call *c)
{
    struct err err;
    if (!c)
        return;
    (void)err_set(&err, ERR_CANCELED, "the client left");
    file_record_end(c, &err);
    stream_close(c->stream);
    file_call_free(c);
}

static int files_check_text(const char *what, struct str s, struct err *err)
{
    if (str_has_nul(s))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: holds a NUL byte", what);
    if (s.n >= PATH_TEXT_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: longer than %d bytes", what, PATH_TEXT_MAX - 1);
    return 0;
}

int file_action(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str user, struct str path,
                struct str destination, uint64_t *ret_cause, struct err *err)
{
    if (files_check_text("user", user, err) < 0 || files_check_text("path", path, err) < 0 ||
        files_check_text("destination", destination, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("path", path));
    if (kind == EVENT_FILE_MOVE)
        event_data_str(&d, "destination", destination);
    if (user.n)
        event_data_str(&d, "user", user);
    return action_begin(sb, actor, kind, event_data_end(&d), ret_cause, err);
}

struct buf *file_begin(struct sandbox *sb, const struct actor *actor, enum wire_verb verb, enum event_kind kind,
                       struct str user, struct str path, struct str destination, void *ctx, struct file_call **ret_call,
                       struct err *err)
{
    uint64_t cause;
    if (file_action(sb, actor, kind, user, path, destination, &cause, err) < 0)
        return NULL;
    *ret_call = file_call_new(sb, kind, cause, ctx);
    struct buf *b = session_request(sb->session, verb);
    wire_put_str(b, sandbox_user(sb, user));
    wire_put_str(b, path);
    if (verb == WIRE_MOVE)
        wire_put_str(b, destination);
    return b;
}

void file_record_end(struct file_call *c, const struct err *err)
{
    if (c->sb->core->closing || c->kind == EVENT_FILE_STAT || c->kind == EVENT_FILE_WATCH)
        return; /* their action says it all */
    if (c->kind == EVENT_DIAL && (!err || c->opened || !c->cause))
        return;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    if (err && err->code == ERR_RESOURCE_EXHAUSTED)
        usage_suspect(c->sb);
    if (err)
        action_describe_error(&d, err);
    if (c->kind == EVENT_FILE_READ || c->kind == EVENT_FILE_WRITE || c->kind == EVENT_FILE_PACK ||
        c->kind == EVENT_FILE_UNPACK)
        event_data_u64(&d, "bytes", c->in + c->out);
    else if (c->kind == EVENT_FILE_LIST)
        event_data_u64(&d, "entries", c->in);
    enum event_kind failed = c->kind == EVENT_DIAL ? EVENT_DIAL_FAILED : EVENT_FILE_FAILED;
    enum event_grade grade = stream_was_answered(c->stream) ? EVENT_CLAIMED : EVENT_OBSERVED_HOST;
    action_observe(c->sb, c->cause, err ? failed : EVENT_FILE_DONE, grade, event_data_end(&d));
}

const struct err *file_end(struct file_call *c, bool is_sound, const struct err *err, struct err *room)
{
    if (!err && !is_sound) {
        stream_violation(c->stream, "a malformed answer to a file operation");
        (void)err_set(room, ERR_UNAVAILABLE, "the sandbox failed");
        err = room;
    }
    file_record_end(c, err);
    file_call_free(c);
    return err;
}

bool file_take_entry(struct file_call *c, struct str payload, struct wire_entry *ret_entry)
{
    struct wire_reader r = wire_reader_of(payload);
    if (entry_get(&r, ret_entry) && wire_done(&r))
        return true;
    stream_violation(c->stream, "a malformed entry");
    return false;
}

/* ---- one entry or nothing ---- */

static void on_entry_end(void *user, struct str tail, const struct err *err)
{
    struct file_call *c = user;
    file_entry_fn done = c->to.entry;
    void *ctx = c->ctx;
    struct wire_entry entry;
    struct err local;
    err = file_end(c, err || file_take_entry(c, tail, &entry), err, &local);
    done(ctx, err ? NULL : &entry.e, err);
}

/* Of an operation that has no entry, and of a list, none of whose records was cut. */
static void on_empty_end(void *user, struct str tail, const struct err *err)
{
    struct file_call *c = user;
    file_entry_fn done = c->to.entry;
    void *ctx = c->ctx;
    struct err local;
    err = file_end(c, !tail.n && !buf_len(&c->rest), err, &local);
    done(ctx, NULL, err);
}

static const struct stream_ops entry_ops = {.on_end = on_entry_end};
static const struct stream_ops empty_ops = {.on_end = on_empty_end};

struct op {
    enum wire_verb verb;
    enum event_kind kind;
    const struct stream_ops *ops;
};

static int files_start(struct sandbox *sb, const struct actor *actor, const struct op *op, struct str user,
                       struct str path, struct str destination, file_entry_fn done, void *ctx,
                       struct file_call **ret_call, struct err *err)
{
    struct file_call *c;
    struct buf *b = file_begin(sb, actor, op->verb, op->kind, user, path, destination, ctx, &c, err);
    if (!b)
        return -1;
    c->to.entry = done;
    return file_call_open(c, b, op->ops, ret_call, err);
}

int file_stat(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, file_entry_fn done,
              void *ctx, struct file_call **ret_call, struct err *err)
{
    static const struct op op = {WIRE_STAT, EVENT_FILE_STAT, &entry_ops};
    return files_start(sb, actor, &op, user, path, STR_NULL, done, ctx, ret_call, err);
}

int file_make_dir(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, file_entry_fn done,
                  void *ctx, struct file_call **ret_call, struct err *err)
{
    static const struct op op = {WIRE_MKDIR, EVENT_FILE_MKDIR, &entry_ops};
    return files_start(sb, actor, &op, user, path, STR_NULL, done, ctx, ret_call, err);
}

int file_move(struct sandbox *sb, const struct actor *actor, struct str user, struct str source, struct str destination,
              file_entry_fn done, void *ctx, struct file_call **ret_call, struct err *err)
{
    static const struct op op = {WIRE_MOVE, EVENT_FILE_MOVE, &entry_ops};
    return files_start(sb, actor, &op, user, source, destination, done, ctx, ret_call, err);
}

int file_remove(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, file_entry_fn done,
                void *ctx, struct file_call **ret_call, struct err *err)
{
    static const struct op op = {WIRE_REMOVE, EVENT_FILE_REMOVE, &empty_ops};
    return files_start(sb, actor, &op, user, path, STR_NULL, done, ctx, ret_call, err);
}

int file_change(struct sandbox *sb, const struct actor *actor, struct str user, struct str path,
                const struct file_change *change, file_entry_fn done, void *ctx, struct file_call **ret_call,
                struct err *err)
{
    enum event_kind kind = change->flags & WIRE_CHANGE_MAKE ? EVENT_FILE_MKDIR : EVENT_FILE_WRITE;
    struct file_call *c;
    struct buf *b = file_begin(sb, actor, WIRE_CHANGE, kind, user, path, STR_NULL, ctx, &c, err);
    if (!b)
        return -1;
    c->to.entry = done;
    wire_put_u8(b, change->flags);
    wire_put_u32(b, change->uid);
    wire_put_u32(b, change->gid);
    wire_put_u32(b, change->mode);
    return file_call_open(c, b, &entry_ops, ret_call, err);
}

/* ---- lists: records that frames may cut anywhere ---- */

static void on_list_reply(void *user, struct str head)
{
    struct file_call *c = user;
    if (head.n)
        stream_violation(c->stream, "a malformed head of LIST");
}

/* Hands out the whole records of p; *ret_used is how many bytes they were. False: the call is gone, or the agent
 * lied. */
static bool take_records(struct file_call *c, struct str p, size_t *ret_used)
{
    struct wire_entry entry;
    bool sound = true, gone;
    *ret_used = 0;
    c->busy = true;
    while (*ret_used < p.n && !c->gone) {
        struct wire_reader r = wire_reader_of(str_sub(p, *ret_used));
        sound = entry_get(&r, &entry);
        if (r.bad)
            break; /* not whole yet */
        if (!sound) {
            stream_violation(c->stream, "a malformed entry");
            break;
        }
        *ret_used = p.n - r.n;
        c->in++;
        c->each(c->ctx, &entry.e);
    }
    c->busy = false;
    gone = c->gone;
    if (gone)
        file_call_free(c);
    return sound && !gone;
}

static void on_list_data(void *user, uint8_t flags UNUSED, struct str bytes)
{
    struct file_call *c = user;
    size_t used;
    stream_grant(c->stream, bytes.n, false);
    if (buf_len(&c->rest)) {
        (void)buf_append_str(&c->rest, bytes);
        bytes = buf_str(&c->rest);
    }
    if (!take_records(c, bytes, &used))
        return;
    struct str left = str_sub(bytes, used);
    if (buf_len(&c->rest))
        buf_consume(&c->rest, used);
    else
        (void)buf_append_str(&c->rest, left);
    if (buf_error(&c->rest) || buf_len(&c->rest) > WIRE_PAYLOAD_MAX)
        stream_violation(c->stream, "an endless entry");
}

static const struct stream_ops list_ops = {.on_reply = on_list_reply, .on_data = on_list_data, .on_end = on_empty_end};

int file_list(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, uint32_t depth,
              void (*each)(void *ctx, const struct file_entry *entry), file_entry_fn done, void *ctx,
              struct file_call **ret_call, struct err *err)
{
    struct file_call *c;
    struct buf *b = file_begin(sb, actor, WIRE_LIST, EVENT_FILE_LIST, user, path, STR_NULL, ctx, &c, err);
    if (!b)
        return -1;
    c->to.entry = done;
    c->each = each;
    wire_put_u32(b, MAX(depth, 1u));
    return file_call_open(c, b, &list_ops, ret_call, err);
}
