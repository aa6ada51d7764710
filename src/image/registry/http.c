/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/http.h"
#include "base/mem.h"
#include "image/registry/resolve.h"
#include "policy/netaddr.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum {
    RESOLVE_TEXT_MAX = REFERENCE_HOST_MAX + 16 + RESOLVE_ADDRESSES_MAX * (NETADDR_TEXT_MAX + 3),
    STALL_BYTES = 1024
};

struct http {
    struct http_config config;
    CURL *curl;
    struct resolve *resolve;
    struct netaddr *own; /* this machine's addresses */
    size_t n_own;
};

/* Where a URL leads. */
struct http_target {
    char name[REFERENCE_HOST_MAX];
    uint16_t port;
    bool tls;
    const struct http_host *allowed; /* NULL: public addresses alone */
    char resolve[RESOLVE_TEXT_MAX];
};

/* One request under way. */
struct http_call {
    struct http *h;
    const struct registry_request *q;
    struct http_target *target;
    struct http_answer *answer;
    struct err *err;
    bool failed; /* *err is filled */
    bool refused;
    bool begun;    /* the body did */
    uint64_t skip; /* of the body, at its front: the server can't or would not leave it out */
    uint64_t got;
    unsigned headers;
};

int http_new(const struct http_config *config, struct http **ret_http, struct err *err)
{
    struct http *h = mem_new(struct http);
    int r = 0;
    h->config = *config;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == 0)
        h->curl = curl_easy_init();
    if (!h->curl || resolve_new(&h->resolve, err) < 0 || (r = netaddr_own(&h->own, &h->n_own)) < 0) {
        if (!h->curl)
            (void)err_set(err, ERR_INTERNAL, "libcurl does not start");
        else if (r < 0)
            (void)err_errno(err, r, "ask for this machine's own addresses");
        http_free(h);
        return -1;
    }
    *ret_http = h;
    return 0;
}

void http_free(struct http *h)
{
    if (!h)
        return;
    curl_easy_cleanup(h->curl);
    resolve_free(h->resolve);
    MEM_FREE(h->own, h);
}

void http_set(struct http *h, const struct http_config *config)
{
    h->config = *config;
}

void http_answer_fini(struct http_answer *a)
{
    buf_fini(&a->reason);
}

/* ---- URLs ---- */

static bool get_part(CURLU *url, CURLUPart what, unsigned flags, char *to, size_t room)
{
    char *text = NULL;
    bool good = curl_url_get(url, what, &text, flags) == CURLUE_OK && strlen(text) < room;
    if (good)
        memcpy(to, text, strlen(text) + 1);
    curl_free(text);
    return good;
}

static bool has_part(CURLU *url, CURLUPart what)
{
    char *text = NULL;
    bool has = curl_url_get(url, what, &text, 0) == CURLUE_OK;
    curl_free(text);
    return has;
}

/* Only absolute URLs of http and https, without user and password. */
static bool parse_url(const char *text, struct http_target *ret_target)
{
    char scheme[8], host[REFERENCE_HOST_MAX], port[8];
    struct http_target t = {.tls = true};
    uint64_t number;
    uint16_t none;
    CURLU *url = strlen(text) < HTTP_URL_MAX ? curl_url() : NULL;
    bool good = url && curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK &&
                get_part(url, CURLUPART_SCHEME, 0, scheme, sizeof(scheme)) &&
                get_part(url, CURLUPART_HOST, 0, host, sizeof(host)) &&
                get_part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT, port, sizeof(port)) &&
                !has_part(url, CURLUPART_USER) && !has_part(url, CURLUPART_PASSWORD) &&
                str_to_u64(str_of(port), &number) == 0 && number > 0 && number < 65536 &&
                (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
                reference_split_host(str_of(host), t.name, &none);
    curl_url_cleanup(url);
    if (!good)
        return false;
    t.port = (uint16_t)number;
    t.tls = strcmp(scheme, "https") == 0;
    *ret_target = t;
    return true;
}

bool http_url_host(const char *url, char ret_host[static REFERENCE_HOST_MAX])
{
    struct http_target t;
    if (!parse_url(url, &t))
        return false;
    const char *open = strchr(t.name, ':') ? "[" : "", *close = strchr(t.name, ':') ? "]" : "";
    int n = t.port == (t.tls ? 443 : 80)
                ? snprintf(ret_host, REFERENCE_HOST_MAX, "%s%s%s", open, t.name, close)
                : snprintf(ret_host, REFERENCE_HOST_MAX, "%s%s%s:%u", open, t.name, close, t.port);
    return n > 0 && n < REFERENCE_HOST_MAX;
}

/* ---- who may be dialled ---- */

/* What is the machine's own may be public, and open to nobody but itself. */
static enum net_class class_of(const struct http *h, const struct netaddr *addr)
{
    for (size_t i = 0; i < h->n_own; i++)
        if (netaddr_eq(&h->own[i], addr))
            return NET_HOST;
    return netaddr_class(addr);
}

static bool may_dial(const struct http *h, const struct http_target *t, const struct netaddr *addr)
{
    enum net_class c = class_of(h, addr);
    return c == NET_PUBLIC || (t->allowed && (c == NET_HOST || c == NET_PRIVATE || c == NET_LOOPBACK ||
                                              c == NET_SHARED || c == NET_LINK_LOCAL));
}

static int http_refuse(const struct http *h, const struct http_target *t, const struct netaddr *addr, struct err *err)
{
    char text[NETADDR_TEXT_MAX];
    netaddr_print(addr, text);
    return err_set(err, ERR_PERMISSION_DENIED,
                   "%.80s is at %s (%s), where registries are only used if \"insecure\" lists the host", t->name, text,
                   net_class_name(class_of(h, addr)));
}

static int prepare(struct http *h, const char *url, struct http_target *t, struct err *err)
{
    struct netaddr addrs[RESOLVE_ADDRESSES_MAX];
    size_t n_addrs = 0, n_good = 0;
    if (!parse_url(url, t))
        return err_set(err, ERR_INVALID_ARGUMENT, "not a usable http(s) URL: %.120s", url);
    t->allowed = http_hosts_find(h->config.hosts, t->name, t->port);
    if (!t->tls && !(t->allowed && t->allowed->plain))
        return err_set(err, ERR_PERMISSION_DENIED,
                       "%.120s would be used without TLS, which is only allowed for hosts in \"insecure\"", t->name);
    if (resolve_name(h->resolve, t->name, h->config.until, addrs, &n_addrs, err) < 0)
        return -1;
    size_t n = (size_t)snprintf(t->resolve, sizeof(t->resolve), "%s%s%s:%u:", strchr(t->name, ':') ? "[" : "", t->name,
                                strchr(t->name, ':') ? "]" : "", t->port);
    for (size_t i = 0; i < n_addrs; i++) {
        char text[NETADDR_TEXT_MAX];
        if (!may_dial(h, t, &addrs[i]))
            continue;
        netaddr_print(&addrs[i], text);
        n += (size_t)snprintf(t->resolve + n, sizeof(t->resolve) - n, addrs[i].family == 6 ? "%s[%s]" : "%s%s",
                              n_good ? "," : "", text);
        n_good++;
    }
    return n_good > 0 ? 0 : http_refuse(h, t, &addrs[0], err);
}

/* ---- what libcurl calls ---- */

static curl_socket_t http_on_open(void *ctx, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct http_call *c = ctx;
    struct netaddr addr;
    if (purpose != CURLSOCKTYPE_IPCXN || !netaddr_from_sockaddr(&to->addr, &addr, NULL) ||
        !may_dial(c->h, c->target, &addr)) {
        c->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

static int begin_body(struct http_call *c, long status)
{
    uint64_t from = status == 206 ? c->answer->range_from : 0;
    c->begun = true;
    if (from > c->q->offset || (status == 206 && c->q->offset == 0))
        return err_set(c->err, ERR_INVALID_ARGUMENT, "%.100s sends a different range than requested", c->target->name);
    c->skip = c->q->offset - from;
    return 0;
}

static int take_body(struct http_call *c, const char *p, size_t n)
{
    size_t skipped = (size_t)MIN((uint64_t)n, c->skip);
    c->skip -= skipped;
    n -= skipped;
    if (n == 0)
        return 0;
    if (n > c->q->max_bytes - c->got)
        return err_set(c->err, ERR_OUT_OF_RANGE, "%.100s sends more than the %llu bytes that are allowed",
                       c->target->name, (unsigned long long)c->q->max_bytes);
    c->got += n;
    return c->q->body(c->q->ctx, p + skipped, n, c->err);
}

static size_t http_on_body(char *p, size_t size UNUSED, size_t n, void *ctx)
{
    struct http_call *c = ctx;
    long status = 0;
    (void)curl_easy_getinfo(c->h->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206) {
        size_t room = HTTP_REASON_MAX - buf_len(&c->answer->reason);
        c->got += n;
        (void)buf_append(&c->answer->reason, p, MIN(n, room));
        return c->got > 64 * HTTP_REASON_MAX ? 0 : n;
    }
    c->failed = (!c->begun && begin_body(c, status) < 0) || take_body(c, p, n) < 0;
    return c->failed ? 0 : n;
}

static void copy_type(struct str value, char ret_type[static 128])
{
    value = str_trim(str_before(value, ';'));
    if (value.n >= 128)
        return;
    for (size_t i = 0; i < value.n; i++)
        ret_type[i] = value.p[i] >= 'A' && value.p[i] <= 'Z' ? (char)(value.p[i] + 32) : value.p[i];
    ret_type[value.n] = '\0';
}

/* "bytes 100-199/200" */
static bool range_from(struct str value, uint64_t *ret_from)
{
    if (!str_starts(value, STR("bytes ")))
        return false;
    value = str_sub(value, 6);
    ssize_t dash = str_find_char(value, '-');
    return dash > 0 && str_to_u64(str_n(value.p, (size_t)dash), ret_from) == 0;
}

static void take_header(struct http_answer *a, struct str name, struct str value)
{
    uint64_t number;
    if (str_eq_nocase(name, STR("Content-Type"))) {
        copy_type(value, a->content_type);
    } else if (str_eq_nocase(name, STR("WWW-Authenticate"))) {
        struct challenge c;
        challenge_parse(value, &c);
        if (c.scheme > a->challenge.scheme)
            a->challenge = c;
    } else if (str_eq_nocase(name, STR("Location")) && value.n < HTTP_URL_MAX && !str_has_nul(value)) {
        memcpy(a->location, value.p, value.n);
        a->location[value.n] = '\0';
    } else if (str_eq_nocase(name, STR("Retry-After")) && str_to_u64(value, &number) == 0) {
        a->retry_after_s = (unsigned)MIN(number, 3600);
    } else if (str_eq_nocase(name, STR("Content-Length")) && str_to_u64(value, &number) == 0) {
        a->length = number;
    } else if (str_eq_nocase(name, STR("Content-Range")) && range_from(value, &number)) {
        a->range_from = number;
    }
}

static void reset_answer(struct http_answer *a)
{
    struct buf reason = a->reason;
    *a = (struct http_answer){.length = UINT64_MAX, .reason = reason};
}

static size_t http_on_header(char *p, size_t size, size_t n, void *ctx)
{
    struct http_call *c = ctx;
    struct str line = str_n(p, n * size);
    while (line.n > 0 && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == '\n'))
        line.n--;
    if (str_starts(line, STR("HTTP/"))) { /* again after 1xx */
        reset_answer(c->answer);
        return n;
    }
    if (++c->headers > HTTP_HEADERS_MAX)
        return 0;
    ssize_t colon = str_find_char(line, ':');
    if (colon > 0)
        take_header(c->answer, str_n(line.p, (size_t)colon), str_trim(str_sub(line, (size_t)colon + 1)));
    return n;
}

static int on_progress(void *ctx, curl_off_t a UNUSED, curl_off_t b UNUSED, curl_off_t d UNUSED, curl_off_t e UNUSED)
{
    struct http_call *c = ctx;
    if (c->h->config.canceled(c->h->config.ctx))
        c->failed = err_set(c->err, ERR_CANCELED, "canceled");
    else if (clock_mono() > c->h->config.until)
        c->failed = err_set(c->err, ERR_DEADLINE_EXCEEDED, "the image took too long: allow more time, or try again");
    return c->failed ? 1 : 0;
}

/* ---- requests ---- */

static bool set_up(struct http_call *c, struct curl_slist *headers, struct curl_slist *resolve)
{
    CURL *curl = c->h->curl;
    const struct http_config *o = &c->h->config;
    struct curl_blob ca = {.data = (void *)(uintptr_t)o->ca.p, .len = o->ca.n, .flags = CURL_BLOB_NOCOPY};
    char range[40];
    (void)snprintf(range, sizeof(range), "%llu-", (unsigned long long)c->q->offset);
    curl_easy_reset(curl); /* keeps connections */
#define SET(option, value) (curl_easy_setopt(curl, option, value) == CURLE_OK)
    return SET(CURLOPT_URL, c->q->url) && SET(CURLOPT_HTTPHEADER, headers) && SET(CURLOPT_RESOLVE, resolve) &&
           SET(CURLOPT_NOSIGNAL, 1L) && SET(CURLOPT_PROXY, "") && SET(CURLOPT_FOLLOWLOCATION, 0L) &&
           SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) &&
           SET(CURLOPT_PROTOCOLS_STR, c->target->tls ? "https" : "http") &&
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) && SET(CURLOPT_HTTP09_ALLOWED, 0L) &&
           SET(CURLOPT_USERAGENT, "cove/" COVE_VERSION) && SET(CURLOPT_CONNECTTIMEOUT, (long)HTTP_CONNECT_S) &&
           SET(CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES) && SET(CURLOPT_LOW_SPEED_TIME, (long)o->stall_s) &&
           SET(CURLOPT_BUFFERSIZE, 256L * 1024) && SET(CURLOPT_CAINFO, NULL) && SET(CURLOPT_CAPATH, NULL) &&
           (o->ca.n == 0 || SET(CURLOPT_CAINFO_BLOB, &ca)) && SET(CURLOPT_OPENSOCKETFUNCTION, http_on_open) &&
           SET(CURLOPT_OPENSOCKETDATA, c) && SET(CURLOPT_WRITEFUNCTION, http_on_body) && SET(CURLOPT_WRITEDATA, c) &&
           SET(CURLOPT_HEADERFUNCTION, http_on_header) && SET(CURLOPT_HEADERDATA, c) && SET(CURLOPT_NOPROGRESS, 0L) &&
           SET(CURLOPT_XFERINFOFUNCTION, on_progress) && SET(CURLOPT_XFERINFODATA, c) &&
           SET(CURLOPT_DNS_CACHE_TIMEOUT, 0L) && (c->q->offset == 0 || SET(CURLOPT_RANGE, range));
#undef SET
}

static int http_explain(const struct http_call *c, CURLcode code, const char *detail)
{
    const char *host = c->target->name;
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
        return err_set(c->err, ERR_PERMISSION_DENIED, "%.80s: its certificate is not trusted: %.120s", host, detail);
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(c->err, ERR_UNAVAILABLE, "%.80s: no answer, or less than %d bytes/s for %u s", host, STALL_BYTES,
                       c->h->config.stall_s);
    default:
        return err_set(c->err, ERR_UNAVAILABLE, "%.80s: %.140s", host, detail[0] ? detail : curl_easy_strerror(code));
    }
}

static int perform(struct http_call *c, struct curl_slist *headers, struct curl_slist *resolve)
{
    char detail[CURL_ERROR_SIZE] = "";
    long status = 0;
    if (!set_up(c, headers, resolve) || curl_easy_setopt(c->h->curl, CURLOPT_ERRORBUFFER, detail) != CURLE_OK)
        return err_set(c->err, ERR_INTERNAL, "libcurl refuses an option");
    CURLcode code = curl_easy_perform(c->h->curl);
    (void)curl_easy_getinfo(c->h->curl, CURLINFO_RESPONSE_CODE, &status);
    if (c->failed)
        return -1;
    if (c->refused)
        return err_set(c->err, ERR_PERMISSION_DENIED, "%.120s leads to an address that is not allowed",
                       c->target->name);
    bool enough = code == CURLE_WRITE_ERROR && status != 200 && status != 206 && status >= 300;
    if (code != CURLE_OK && !enough)
        return http_explain(c, code, detail);
    c->answer->status = (int)status;
    return 0;
}

static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value)
{
    AUTO_FREE char *line = mem_printf("%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(list, line);
    assert(longer);
    mem_wipe(line, strlen(line));
    return longer;
}

int http_get(struct http *h, const struct registry_request *q, struct http_answer *ret_answer, struct err *err)
{
    struct http_target target = {.port = 0};
    struct http_answer answer = {.length = UINT64_MAX, .reason = BUF_INIT(HTTP_REASON_MAX)};
    struct http_call c = {.h = h, .q = q, .target = &target, .answer = &answer, .err = err};
    struct curl_slist *headers = NULL;
    if (h->config.canceled(h->config.ctx))
        return err_set(err, ERR_CANCELED, "canceled");
    if (prepare(h, q->url, &target, err) < 0)
        return -1;
    if (q->accept)
        headers = add_header(headers, "Accept", q->accept);
    if (q->authorization)
        headers = add_header(headers, "Authorization", q->authorization);
    headers = add_header(headers, "Accept-Encoding", "identity");
    struct curl_slist *resolve = curl_slist_append(NULL, target.resolve);
    assert(resolve);
    int r = perform(&c, headers, resolve);
    curl_slist_free_all(headers);
    curl_slist_free_all(resolve);
    if (r < 0)
        http_answer_fini(&answer);
    else
        *ret_answer = answer;
    return r;
}
