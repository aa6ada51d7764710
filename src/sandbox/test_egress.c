/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/test_world.h"
#include "wire/egress.h"

#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/socket.h>

#include <cmocka.h>

static void send_json(struct fake_egress *e, json_t *object)
{
    AUTO_FREE char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    egress_say(e->w, text);
}

void egress_say(struct world *w, const char *message)
{
    size_t n = strlen(message);
    for (;;) {
        if (send(w->egress.fd, message, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n)
            return;
        if (errno == EPIPE)
            return;
        assert_int_equal(errno, EAGAIN);
        world_turn(w);
    }
}

void egress_say_of(struct world *w, const struct sandbox *sb, const char *op, const char *members)
{
    AUTO_FREE char *text = mem_printf("{\"op\":\"%s\",\"id\":\"%s\",\"at\":1,%s}", op, sandbox_info(sb)->id, members);
    egress_say(w, text);
}

static void remember(struct fake_egress *e, const char *id, const json_t *message)
{
    mem_free(map_put(&e->policies, str_of(id), json_dumps(message, JSON_COMPACT)));
}

static void on_message(struct fake_egress *e, json_t *m)
{
    const char *op = json_string_value(json_object_get(m, "op"));
    const char *id = json_string_value(json_object_get(m, "id"));
    json_int_t tag = json_integer_value(json_object_get(m, "tag"));
    json_t *answer = json_pack("{s:I}", "tag", tag);
    assert_non_null(op);
    assert_true(id || strcmp(op, "ask") == 0);
    e->last_tag = tag;
    if (e->is_mute)
        op = "";
    if (e->refuses && strcmp(op, e->refuses) == 0) {
        (void)json_object_update_new(
            answer, json_pack("{s:s,s:s,s:s}", "op", "failed", "code", "resource_exhausted", "message", "too many"));
    } else if (strcmp(op, "policy") == 0) {
        e->n_policies++;
        remember(e, id, m);
        (void)json_object_set_new(answer, "op", json_string("done"));
        if (e->ca_pem && json_object_get(json_object_get(m, "policy"), "inject"))
            (void)json_object_update_new(answer, json_pack("{s:s,s:s}", "ca", "c2VhbGVkQ0E=", "ca_pem", e->ca_pem));
    } else if (strcmp(op, "seal") == 0) {
        (void)snprintf(e->sealed, sizeof(e->sealed), "%s", json_string_value(json_object_get(m, "value")));
        AUTO_FREE char *sealed = mem_printf("c2VhbGVk%u", e->n_seals++);
        (void)json_object_update_new(answer, json_pack("{s:s,s:s}", "op", "sealed", "value", sealed));
    } else if (strcmp(op, "ask") == 0) {
        (void)json_object_update_new(answer, json_pack("{s:s,s:i,s:s}", "op", "asked", "status", 200, "body", "{}"));
    } else if (strcmp(op, "check") == 0) {
        (void)json_object_update_new(answer,
                                     json_pack("{s:s,s:s,s:i,s:s,s:[],s:b}", "op", "checked", "verdict", "deny", "rule",
                                               -1, "reason", "by default", "addresses", "intercepted", 0));
    } else {
        e->n_forgets += strcmp(op, "forget") == 0;
        json_decref(answer);
        return;
    }
    send_json(e, answer);
}

static void on_poll(uv_poll_t *handle, int status UNUSED, int events UNUSED)
{
    struct fake_egress *e = handle->data;
    char *room = mem_alloc(EGRESS_MESSAGE_MAX);
    for (;;) {
        ssize_t n = recv(e->fd, room, EGRESS_MESSAGE_MAX, MSG_DONTWAIT);
        if (n <= 0) {
            if (n == 0)
                (void)uv_poll_stop(handle);
            break;
        }
        json_t *m = json_loadb(room, (size_t)n, 0, NULL);
        assert_true(json_is_object(m));
        on_message(e, m);
        json_decref(m);
    }
    mem_free(room);
}

void egress_start(struct world *w)
{
    struct fake_egress *e = &w->egress;
    int pair[2];
    egress_stop(w);
    e->w = w;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    e->fd = pair[1];
    assert_int_equal(setsockopt(e->fd, SOL_SOCKET, SO_SNDBUF, &(int){1 << 20}, sizeof(int)), 0);
    egress_send_on(w, pair[0]);
    (void)fd_close(pair[0]);
    assert_int_equal(uv_poll_init(&w->loop, &e->poll, e->fd), 0);
    e->poll.data = e;
    assert_int_equal(uv_poll_start(&e->poll, UV_READABLE, on_poll), 0);
    egress_say(w, "{\"op\":\"hello\"}");
}

void egress_stop(struct world *w)
{
    struct fake_egress *e = &w->egress;
    size_t it = 0;
    for (char *text; (text = map_next(&e->policies, &it));)
        mem_free(text);
    map_fini(&e->policies);
    if (e->fd < 0)
        return;
    uv_close((uv_handle_t *)&e->poll, NULL);
    (void)uv_run(&w->loop, UV_RUN_NOWAIT);
    e->fd = fd_close(e->fd);
}

bool egress_is_hung_up(struct world *w)
{
    struct pollfd p = {.fd = w->egress.fd, .events = 0};
    world_turn(w);
    return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

const char *egress_policy(struct world *w, const char *id)
{
    const char *text = map_get(&w->egress.policies, str_of(id));
    return text ? text : "";
}
