/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POSTs a text for cove-api, which has no sockets of its own, to a service of the operator's: the guard's analyser. It
 * goes to where the URL says, whatever the policies of sandboxes say; the certificate of an https URL is checked. A
 * thread of the pool waits for it, at most ASK_PENDING_MAX at a time.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "egress/requests.h"
#include "http/client/client.h"

#include <sys/socket.h>

enum { ASK_HEADERS_MAX = 16, ASK_PENDING_MAX = 3, ASK_ANSWER_MAX = 64 * 1024, ASK_MS_MAX = 20000 };

struct ask {
    struct list node;
    struct egress *egress; /* NULL: gone */
    json_t *request;
    char *endpoint, *target; /* "http://host:port", "/path" */
    const char *text;
    int timeout_ms;
    uv_work_t work;
    int error, status; /* of the thread, until it is done */
    int fd;            /* atomic: the socket, -1 while there is none */
    struct buf answer;
};

static int ask_exchange(struct ask *p)
{
    AUTO(http_client_free) struct http_client *c = NULL;
    struct http_header headers[1 + ASK_HEADERS_MAX] = {HTTP_JSON};
    size_t n_headers = 1;
    usec_t end = clock_add_ms(clock_mono(), (uint64_t)p->timeout_ms);
    int r = http_client_open(p->endpoint, p->timeout_ms, &c);
    if (r < 0)
        return r;
    JSON_FOREACH_MEMBER (name, value, json_object_get(p->request, "headers"))
        if (json_is_string(value) && n_headers < ARRAY_SIZE(headers))
            headers[n_headers++] = (struct http_header){str_of(name), str_of(json_string_value(value))};
    http_client_until(c, end);
    __atomic_store_n(&p->fd, http_client_fd(c), __ATOMIC_SEQ_CST);
    r = http_client_send(c, "POST", p->target, headers, n_headers, str_of(p->text));
    r = r < 0 ? r : http_client_receive(c);
    for (ssize_t n = 1; r == 0 && n > 0;) {
        char *to = buf_reserve(&p->answer, 4096);
        n = to ? http_client_read(c, to, 4096) : -ENOBUFS;
        if (n > 0)
            buf_commit(&p->answer, (size_t)n);
        r = n < 0 ? (int)n : 0;
    }
    __atomic_store_n(&p->fd, -1, __ATOMIC_SEQ_CST);
    p->status = http_client_status(c);
    return r;
}

static void ask_work(uv_work_t *work)
{
    struct ask *p = container_of(work, struct ask, work);
    p->error = ask_exchange(p);
}

static void ask_free(struct ask *p)
{
    list_remove(&p->node);
    json_decref(p->request);
    buf_fini(&p->answer);
    MEM_FREE(p->endpoint, p->target, p);
}

static void ask_done(uv_work_t *work, int status UNUSED)
{
    struct ask *p = container_of(work, struct ask, work);
    struct egress *e = p->egress;
    struct err err;
    json_t *body = json_stringn(buf_len(&p->answer) ? buf_data(&p->answer) : "", buf_len(&p->answer));
    if (e && p->error == 0 && body) {
        json_t *answer = requests_answer(p->request, "asked");
        (void)json_object_set_new(answer, "status", json_integer(p->status));
        (void)json_object_set(answer, "body", body);
        link_answer(e->link, answer);
    } else if (e) {
        (void)err_set(&err, ERR_UNAVAILABLE, "%s: %s", p->endpoint, p->error ? strerror(-p->error) : "no UTF-8");
        requests_fail(e, p->request, &err);
    }
    if (e)
        e->n_asks--;
    json_decref(body);
    ask_free(p);
}

/* "http://host:port/path" in two. */
static bool ask_split(struct ask *p, const char *url)
{
    const char *host = url ? strstr(url, "://") : NULL;
    if (!host || (!str_starts(str_of(url), STR("http://")) && !str_starts(str_of(url), STR("https://"))))
        return false;
    host += 3;
    size_t n = strcspn(host, "/?#");
    p->endpoint = mem_strndup(url, (size_t)(host - url) + n);
    p->target = mem_printf("%s%.*s", host[n] == '/' ? "" : "/", (int)strcspn(host + n, "#"), host + n);
    return n > 0;
}

int ask_begin(struct egress *e, json_t *request, struct err *err)
{
    struct ask *p = mem_new(struct ask);
    json_int_t ms = json_integer_value(json_object_get(request, "timeout_ms"));
    *p = (struct ask){.egress = e,
                      .request = json_incref(request),
                      .text = json_string_value(json_object_get(request, "body")),
                      .timeout_ms = (int)MIN(MAX(ms, 1), ASK_MS_MAX),
                      .fd = -1,
                      .answer = BUF_INIT(ASK_ANSWER_MAX)};
    list_append(&e->asks, &p->node);
    bool fits = p->text && ask_split(p, json_string_value(json_object_get(request, "url")));
    if (fits && e->n_asks < ASK_PENDING_MAX && uv_queue_work(e->loop, &p->work, ask_work, ask_done) == 0) {
        e->n_asks++;
        return 0;
    }
    ask_free(p);
    return fits ? err_set(err, ERR_RESOURCE_EXHAUSTED, "too many requests are already waiting for an answer")
                : err_set(err, ERR_INVALID_ARGUMENT, "not an http:// or https:// URL");
}

void asks_free(struct egress *e)
{
    LIST_FOREACH (struct ask, p, &e->asks, node) {
        int fd = __atomic_load_n(&p->fd, __ATOMIC_SEQ_CST);
        p->egress = NULL;
        list_remove(&p->node);
        if (fd >= 0)
            (void)shutdown(fd, SHUT_RDWR); /* its thread returns */
    }
}
