/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/vault/vault_server.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/vault/vault.h"
#include "egress/vault/vault_box.h"
#include "wire/vault.h"

#include <sys/socket.h>

static_assert((int)SECRET_NAME_MAX == (int)VAULT_NAME_MAX && (int)SECRET_VALUE_MAX == (int)VAULT_VALUE_MAX &&
                  (int)SECRETS_MAX == (int)VAULT_NAMES_MAX,
              "what the vault holds fits into the protocol");

enum { VAULT_PAUSE_MS = 200 };

struct vault_server {
    uv_loop_t *loop;
    struct vault_server_config config;
    uv_poll_t listener;
    uv_timer_t pause; /* after accept4() failed */
    struct list clients;
    unsigned n_clients;
    unsigned n_handles; /* not closed yet, clients' included; the server is freed with the last */
    bool closing;
};

struct client {
    struct vault_server *server;
    struct list node;
    uv_poll_t poll;
    uv_timer_t patience;
    int fd; /* owned */
    uid_t uid;
    char prefix[24]; /* that the names of its secrets have here, unseen by it; "": all secrets are the client's */
    struct locked input;
    size_t n_input;
    struct buf answer; /* being written */
    unsigned n_handles;
    bool closing;
};

static void vault_server_watch(struct vault_server *s);

/* ---- ends ---- */

static void drop_handle(struct vault_server *s)
{
    if (--s->n_handles > 0)
        return;
    (void)fd_close(s->config.listen_fd);
    mem_free(s);
}

static void client_closed(uv_handle_t *handle)
{
    struct client *c = handle->data;
    struct vault_server *s = c->server;
    if (--c->n_handles == 0) {
        (void)fd_close(c->fd);
        buf_fini(&c->answer);
        mem_free(c);
    }
    drop_handle(s);
}

static void client_end(struct client *c)
{
    if (c->closing)
        return;
    c->closing = true;
    locked_free(&c->input);
    list_remove(&c->node);
    c->server->n_clients--;
    uv_close((uv_handle_t *)&c->poll, client_closed);
    uv_close((uv_handle_t *)&c->patience, client_closed);
    vault_server_watch(c->server);
}

static void server_closed(uv_handle_t *handle)
{
    drop_handle(handle->data);
}

void vault_server_free(struct vault_server *s)
{
    if (!s || s->closing)
        return;
    s->closing = true;
    LIST_FOREACH (struct client, c, &s->clients, node)
        client_end(c);
    uv_close((uv_handle_t *)&s->listener, server_closed);
    uv_close((uv_handle_t *)&s->pause, server_closed);
}

/* ---- requests ---- */

struct vault_server_listing {
    const struct client *client;
    struct buf *to;
    uint32_t n;
};

static bool vault_server_list_one(void *ctx, const char *name, uint64_t set_at_us)
{
    struct vault_server_listing *l = ctx;
    if (!str_starts(str_of(name), str_of(l->client->prefix)))
        return true;
    vault_answer_append_name(l->to, str_of(name + strlen(l->client->prefix)), set_at_us);
    l->n++;
    return true;
}

static int carry_out(struct client *c, const struct vault_request *request, struct err *err)
{
    const struct vault_server_config *config = &c->server->config;
    bool is_set = request->op == VAULT_SET;
    if (request->op == VAULT_LIST)
        return 0;
    AUTO_FREE char *name = mem_printf("%s%.*s", c->prefix, STR_ARG(request->name));
    int r = is_set ? vault_set(config->vault, str_of(name), request->value, err)
                   : vault_remove(config->vault, str_of(name), err);
    if (r < 0)
        return r;
    log_info("secret %s was %s by uid %u", name, is_set ? "set" : "removed", (unsigned)c->uid);
    if (config->on_change)
        config->on_change(config->ctx, name, is_set, c->uid);
    return 0;
}

static void vault_server_answer(struct client *c, struct str message)
{
    struct err err;
    struct vault_request request;
    struct vault_server_listing listing = {c, &c->answer, 0};
    if (vault_request_parse(message, &request) < 0) {
        (void)err_set(&err, ERR_INVALID_ARGUMENT,
                      "the vault does not understand this request: is the client another version?");
        vault_answer_append_error(&c->answer, &err);
    } else if (carry_out(c, &request, &err) < 0) {
        if (err.errnum)
            log_error("secret %.*s: %s", STR_ARG(request.name), err.msg);
        vault_answer_append_error(&c->answer, &err);
    } else {
        size_t at = vault_answer_begin(&c->answer);
        if (request.op == VAULT_LIST)
            vault_each(c->server->config.vault, vault_server_list_one, &listing);
        vault_answer_end(&c->answer, at, listing.n);
    }
    locked_free(&c->input);
}

/* ---- bytes ---- */

static void on_client(uv_poll_t *handle, int status, int events);

static void vault_server_wait_for(struct client *c, int events)
{
    if (uv_poll_start(&c->poll, events, on_client) < 0)
        client_end(c);
}

static void write_answer(struct client *c)
{
    while (buf_len(&c->answer) > 0) {
        ssize_t n = send(c->fd, buf_data(&c->answer), buf_len(&c->answer), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            vault_server_wait_for(c, UV_WRITABLE);
            return;
        }
        if (n < 0)
            break;
        buf_consume(&c->answer, (size_t)n);
    }
    client_end(c);
}

/* Never reads beyond the one request: first its size, then as much as that says. */
static void vault_server_read_request(struct client *c)
{
    for (;;) {
        struct str have = str_n(c->input.p, c->n_input);
        ssize_t whole = vault_message_size(have, VAULT_REQUEST_MAX);
        if (whole < 0 || (whole > 0 && c->n_input == (size_t)whole)) {
            vault_server_answer(c, have);
            write_answer(c);
            return;
        }
        size_t room = (whole ? (size_t)whole : VAULT_HEAD) - c->n_input;
        ssize_t n = recv(c->fd, c->input.p + c->n_input, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            client_end(c);
            return;
        }
        c->n_input += (size_t)n;
    }
}

static void on_client(uv_poll_t *handle, int status, int events UNUSED)
{
    struct client *c = handle->data;
    if (status < 0)
        client_end(c);
    else if (c->input.p)
        vault_server_read_request(c);
    else
        write_answer(c);
}

static void on_patience(uv_timer_t *handle)
{
    client_end(handle->data);
}

/* ---- clients ---- */

/* -1: it is not served, and gets *err as its answer. */
static int admit(struct client *c, struct err *err)
{
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
        return err_errno(err, errno, "ask who the client is");
    c->uid = peer.uid;
    const gid_t group = c->server->config.group_gid;
    const bool is_member = group && group != (gid_t)-1 && fd_peer_is_in(c->fd, group);
    const bool is_owner = peer.uid == 0 || peer.uid == c->server->config.owner_uid;
    if (!is_owner)
        (void)snprintf(c->prefix, sizeof(c->prefix), "_uid-%u.", (unsigned)peer.uid);
    if (!is_owner && !is_member)
        return err_set(err, ERR_PERMISSION_DENIED,
                       "secrets are for root, the service's owner (uid %u) and its group, not for uid %u",
                       (unsigned)c->server->config.owner_uid, (unsigned)peer.uid);
    int r = locked_new(VAULT_REQUEST_MAX, &c->input);
    return r < 0 ? err_errno(err, r, "lock memory for a request") : 0;
}

static void client_new(struct vault_server *s, int fd)
{
    struct client *c = mem_new(struct client);
    struct err err;
    c->server = s;
    c->fd = fd;
    buf_init(&c->answer, VAULT_ANSWER_MAX);
    if (uv_poll_init(s->loop, &c->poll, fd) < 0) {
        (void)fd_close(fd);
        mem_free(c);
        return;
    }
    (void)uv_timer_init(s->loop, &c->patience);
    c->poll.data = c->patience.data = c;
    c->n_handles = 2;
    s->n_handles += 2;
    s->n_clients++;
    list_append(&s->clients, &c->node);
    (void)uv_timer_start(&c->patience, on_patience, VAULT_SERVER_TIMEOUT_MS, 0);
    if (admit(c, &err) == 0) {
        vault_server_wait_for(c, UV_READABLE);
        return;
    }
    log_warn("vault: %s", err.msg);
    vault_answer_append_error(&c->answer, &err);
    write_answer(c);
}

static void on_pause_end(uv_timer_t *handle)
{
    vault_server_watch(handle->data);
}

static void on_listener(uv_poll_t *handle, int status, int events UNUSED)
{
    struct vault_server *s = handle->data;
    for (int i = 0; status == 0 && i < VAULT_SERVER_CLIENTS && s->n_clients < VAULT_SERVER_CLIENTS; i++) {
        /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
        int fd = accept4(s->config.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            client_new(s, fd);
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR && errno != ECONNABORTED)
            status = -errno;
    }
    if (status < 0) { /* out of descriptors or memory */
        (void)uv_poll_stop(&s->listener);
        (void)uv_timer_start(&s->pause, on_pause_end, VAULT_PAUSE_MS, 0);
        return;
    }
    vault_server_watch(s);
}

/* Listens while there is room for another client. */
static void vault_server_watch(struct vault_server *s)
{
    if (s->closing || uv_is_active((uv_handle_t *)&s->pause))
        return;
    if (s->n_clients >= VAULT_SERVER_CLIENTS)
        (void)uv_poll_stop(&s->listener);
    else if (uv_poll_start(&s->listener, UV_READABLE, on_listener) < 0)
        (void)uv_timer_start(&s->pause, on_pause_end, VAULT_PAUSE_MS, 0);
}

static int option(int fd, int name)
{
    int value = -1;
    socklen_t n = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, name, &value, &n) < 0 ? -1 : value;
}

int vault_server_new(uv_loop_t *loop, const struct vault_server_config *config, struct vault_server **ret_server,
                     struct err *err)
{
    int listen_fd = config->listen_fd;
    if (option(listen_fd, SO_DOMAIN) != AF_UNIX || option(listen_fd, SO_TYPE) != SOCK_STREAM ||
        option(listen_fd, SO_ACCEPTCONN) != 1)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "serve the vault: descriptor %d is not a listening unix stream "
                       "socket",
                       listen_fd);
    struct vault_server *s = mem_new(struct vault_server);
    *s = (struct vault_server){.loop = loop, .config = *config};
    list_init(&s->clients);
    int r = fd_nonblock(listen_fd, true);
    if (r == 0)
        r = uv_poll_init(loop, &s->listener, listen_fd);
    if (r < 0) {
        mem_free(s);
        return err_errno(err, r, "serve the vault");
    }
    (void)uv_timer_init(loop, &s->pause);
    s->listener.data = s->pause.data = s;
    s->n_handles = 2;
    vault_server_watch(s);
    *ret_server = s;
    return 0;
}
