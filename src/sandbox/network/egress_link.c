/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/network/egress_link.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "wire/egress.h"
#include "wire/packets.h"

enum { EGRESS_LINK_QUEUE_MAX = 32 << 20 };

struct egress_link {
    struct loop *loop;
    const struct egress_link_ops *ops;
    void *ctx;
    struct packets packets;
    struct map calls; /* tag -> struct egress_call */
    int64_t last_tag;
    struct loop_job lost_job;
    char why[128]; /* it is lost */
};

struct egress_call {
    struct egress_link *link;
    int64_t tag;
    const char *expects;
    egress_call_fn fn;
    void *ctx;
    struct loop_alarm alarm;
};

/* ---- requests ---- */

static void egress_link_call_free(struct egress_call *c)
{
    (void)map_del_u64(&c->link->calls, (uint64_t)c->tag);
    loop_alarm_clear(c->link->loop, &c->alarm);
    mem_free(c);
}

static void egress_link_finish(struct egress_call *c, const json_t *answer, const struct err *err)
{
    egress_call_fn fn = c->fn;
    void *ctx = c->ctx;
    egress_link_call_free(c);
    fn(ctx, answer, err);
}

void egress_call_cancel(struct egress_call *c)
{
    if (c)
        egress_link_call_free(c);
}

static void egress_link_on_alarm(struct loop_alarm *alarm)
{
    struct err err;
    (void)err_set(&err, ERR_DEADLINE_EXCEEDED, "cove-egress did not answer in time");
    egress_link_finish(container_of(alarm, struct egress_call, alarm), NULL, &err);
}

void egress_call_wait(struct egress_call *c, uint64_t ms)
{
    loop_alarm_set(c->link->loop, &c->alarm, clock_add_ms(clock_mono(), ms), egress_link_on_alarm);
}

static void egress_link_fail_all(struct egress_link *l)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "cove-egress, which provides the sandboxes' network, is gone");
    for (struct egress_call *c; (c = map_any(&l->calls));)
        egress_link_finish(c, NULL, &err);
}

/* ---- the socket's end ---- */

static void egress_link_on_lost_job(struct loop_job *job)
{
    struct egress_link *l = container_of(job, struct egress_link, lost_job);
    egress_link_fail_all(l);
    l->ops->on_down(l->ctx, l->why);
}

static void egress_link_on_lost(void *ctx, int error)
{
    struct egress_link *l = ctx;
    (void)snprintf(l->why, sizeof(l->why), "%s",
                   error == 0           ? "its socket is closed"
                   : error == -EMSGSIZE ? "it sent a message that is too long"
                   : error == -EBADMSG  ? "it sent an invalid message"
                                        : strerror(-error));
    log_error("cove-egress: %s", l->why);
    loop_later(l->loop, &l->lost_job);
}

/* ---- out ---- */

/* Steals the object. */
static int enqueue(struct egress_link *l, json_t *object, struct err *err)
{
    char *text = l->packets.now ? json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    size_t n = text ? strlen(text) : 0;
    int r = 0;
    json_decref(object);
    if (!l->packets.now)
        return err_set(err, ERR_UNAVAILABLE, "cove-egress, which provides the sandboxes' network, is not running");
    if (!text) {
        r = err_set(err, ERR_INVALID_ARGUMENT, "a message to cove-egress must be UTF-8");
    } else if (n > EGRESS_MESSAGE_MAX) {
        r = err_set(err, ERR_INVALID_ARGUMENT, "a message to cove-egress can have at most %d KiB",
                    EGRESS_MESSAGE_MAX / 1024);
    } else if (l->packets.queued + n > EGRESS_LINK_QUEUE_MAX) {
        r = err_set(err, ERR_RESOURCE_EXHAUSTED, "cove-egress is overloaded: try again later");
    } else {
        packets_put(&l->packets, str_n(text, n));
    }
    if (text)
        mem_wipe(text, n);
    mem_free(text);
    if (r == 0)
        packets_send(&l->packets);
    return r;
}

int egress_link_call(struct egress_link *l, json_t *request, const char *expects, egress_call_fn fn, void *ctx,
                     struct egress_call **ret_call, struct err *err)
{
    int64_t tag = l->last_tag + 1;
    (void)json_object_set_new(request, "tag", json_integer(tag));
    if (enqueue(l, request, err) < 0)
        return -1;
    struct egress_call *c = mem_new(struct egress_call);
    *c = (struct egress_call){.link = l, .tag = tag, .expects = expects, .fn = fn, .ctx = ctx};
    l->last_tag = tag;
    (void)map_put_u64(&l->calls, (uint64_t)tag, c);
    egress_call_wait(c, EGRESS_ANSWER_MS);
    *ret_call = c;
    return 0;
}

void egress_link_tell(struct egress_link *l, json_t *message)
{
    struct err err;
    if (enqueue(l, message, &err) < 0 && err.code != ERR_UNAVAILABLE)
        log_warn("%s", err.msg);
}

/* ---- in ---- */

static const char *egress_link_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void fail_with(struct egress_call *c, const json_t *answer)
{
    const char *code = egress_link_text_of(answer, "code");
    enum err_code found = ERR_UNKNOWN;
    struct err err;
    for (int i = ERR_CANCELED; i < ERR_CODE_MAX; i++)
        if (strcmp(err_code_name((enum err_code)i), code) == 0)
            found = (enum err_code)i;
    (void)err_set(&err, found, "%s", egress_link_text_of(answer, "message"));
    egress_link_finish(c, NULL, &err);
}

static bool take_answer(struct egress_link *l, const char *op, const json_t *tag, const json_t *answer)
{
    json_int_t number = json_integer_value(tag);
    if (!json_is_integer(tag) || number <= 0 || number > l->last_tag)
        return false;
    struct egress_call *c = map_get_u64(&l->calls, (uint64_t)number);
    if (!c)
        return true; /* too late */
    if (strcmp(op, "failed") == 0)
        fail_with(c, answer);
    else if (strcmp(op, c->expects) == 0)
        egress_link_finish(c, answer, NULL);
    else
        return false;
    return true;
}

static bool egress_link_on_message(void *ctx, json_t *message)
{
    struct egress_link *l = ctx;
    const char *op = json_string_value(json_object_get(message, "op"));
    const json_t *tag = json_object_get(message, "tag");
    if (!op)
        return false;
    if (tag)
        return take_answer(l, op, tag, message);
    return strcmp(op, "hello") == 0 || l->ops->on_told(l->ctx, op, message);
}

/* ---- life ---- */

bool egress_link_is_up(const struct egress_link *l)
{
    return l->packets.now != NULL;
}

void egress_link_attach(struct egress_link *l, int fd)
{
    bool was_lost = l->packets.now || !list_empty(&l->lost_job.node);
    packets_close(&l->packets);
    loop_job_cancel(&l->lost_job);
    if (was_lost) {
        egress_link_fail_all(l);
        l->ops->on_down(l->ctx, "it was replaced");
    }
    int r = packets_attach(&l->packets, fd);
    if (r < 0)
        log_error("watch cove-egress's socket: %s", strerror(-r));
    else
        l->ops->on_up(l->ctx);
}

struct egress_link *egress_link_new(struct loop *loop, const struct egress_link_ops *ops, void *ctx)
{
    static const struct packets_ops packets = {egress_link_on_message, egress_link_on_lost, NULL};
    struct egress_link *l = mem_new(struct egress_link);
    l->loop = loop;
    l->ops = ops;
    l->ctx = ctx;
    packets_init(&l->packets, loop_uv(loop), &packets, l);
    loop_job_init(&l->lost_job, egress_link_on_lost_job);
    return l;
}

void egress_link_free(struct egress_link *l)
{
    if (!l)
        return;
    packets_close(&l->packets);
    loop_job_cancel(&l->lost_job);
    egress_link_fail_all(l);
    map_fini(&l->calls);
    mem_free(l);
}
