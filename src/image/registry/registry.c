/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "image/registry/registry_internal.h"

#include <curl/curl.h>
#include <time.h>

enum { BACKOFF_MS = 250, BACKOFF_MAX_MS = 8000, PROGRESS_BYTES = 64 * 1024, RETRY_AFTER_MAX_S = 60 };

/* One thing that is fetched, over all tries. */
struct fetch {
    struct registry *r;
    registry_fn fn;
    void *ctx;
    uint64_t size;     /* exactly, or UINT64_MAX */
    uint64_t max;      /* at most */
    uint64_t got;      /* handed to fn */
    struct buf *whole; /* what has to come in one piece: emptied before each try; or NULL */
    unsigned wait_s;   /* what the server asked for */
    const char *what;
};

struct registry *registry_new(const struct registry_config *config)
{
    struct registry *r = mem_new(struct registry);
    const char *server = reference_server(config->ref);
    char name[REFERENCE_HOST_MAX];
    uint16_t port = 0;
    r->config = *config;
    if (reference_split_host(str_of(server), name, &port)) {
        const struct http_host *known = http_hosts_find(config->hosts, name, port);
        r->plain = known && known->plain;
        if (!known && port == 0) { /* the entry may name the scheme's own port */
            known = http_hosts_find(config->hosts, name, 80);
            r->plain = known && known->plain;
        }
    }
    AUTO_FREE char *url = mem_printf("%s://%s/", r->plain ? "http" : "https", server);
    if (!http_url_host(url, r->host))
        (void)snprintf(r->host, sizeof(r->host), "%s", server);
    if (config->token)
        registry_set_authorization(r, "Bearer", config->token);
    return r;
}

void registry_free(struct registry *r)
{
    if (!r)
        return;
    if (r->authorization)
        mem_wipe(r->authorization, strlen(r->authorization));
    MEM_FREE(r->authorization, r);
}

bool registry_is_secretive(const struct registry *r)
{
    return r->config.username || r->config.password || r->config.token;
}

void registry_reason(const struct registry *r, const struct buf *body, char ret_text[static REGISTRY_REASON_MAX])
{
    struct str s = registry_is_secretive(r) ? STR("") : buf_str(body);
    size_t n = 0;
    for (size_t i = 0; i < s.n && n < REGISTRY_REASON_MAX - 1; i++)
        if (s.p[i] >= ' ' && s.p[i] <= '~')
            ret_text[n++] = s.p[i];
    ret_text[n] = '\0';
}

/* ---- one answer ---- */

static int registry_on_body(void *ctx, const void *p, size_t n, struct err *err)
{
    struct fetch *f = ctx;
    if (f->size != UINT64_MAX && n > f->size - f->got)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s is larger than its manifest says (%llu bytes)", f->what,
                       (unsigned long long)f->size);
    if (n > f->max - f->got)
        return err_set(err, ERR_OUT_OF_RANGE, "%s is larger than %llu bytes", f->what, (unsigned long long)f->max);
    f->got += n;
    return f->fn(f->ctx, p, n, err);
}

static bool starts_scheme(const char *url)
{
    return strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
}

/* Where a redirect leads; relative to where it came from. */
static char *follow(const char *from, const char *location)
{
    CURLU *url = curl_url();
    char *text = NULL, *result = NULL;
    if (url && location[0] && curl_url_set(url, CURLUPART_URL, from, 0) == CURLUE_OK &&
        curl_url_set(url, CURLUPART_URL, location, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_URL, &text, 0) == CURLUE_OK && starts_scheme(text))
        result = mem_strdup(text);
    curl_free(text);
    curl_url_cleanup(url);
    return result;
}

static int registry_refused(const struct fetch *f, const struct http_answer *a, struct err *err)
{
    char reason[REGISTRY_REASON_MAX];
    registry_reason(f->r, &a->reason, reason);
    const char *host = f->r->host, *sep = reason[0] ? ": " : "";
    switch (a->status) {
    case 404:
        return err_set(err, ERR_NOT_FOUND, "%.60s has no such %s in %.80s: check the image's name", host, f->what,
                       f->r->config.ref->path);
    case 403:
        return err_set(err, ERR_PERMISSION_DENIED, "%.80s denies access to %s%s%s", host, f->what, sep, reason);
    case 401:
        return err_set(err, ERR_UNAUTHENTICATED, "%.80s refuses these credentials for %s%s%s", host, f->what, sep,
                       reason);
    default:
        break;
    }
    bool later = a->status == 408 || a->status == 429 || a->status >= 500;
    return err_set(err, later ? ERR_UNAVAILABLE : ERR_FAILED_PRECONDITION, "%.80s answers %d for %s%s%s", host,
                   a->status, f->what, sep, reason);
}

static int registry_ask(struct fetch *f, const char *url, const char *accept, bool with_auth,
                        struct http_answer *ret_answer, struct err *err)
{
    struct registry_request q = {.url = url,
                                 .accept = accept,
                                 .authorization = with_auth ? f->r->authorization : NULL,
                                 .offset = f->got,
                                 .max_bytes = UINT64_MAX,
                                 .body = registry_on_body,
                                 .ctx = f};
    return http_get(f->r->config.http, &q, ret_answer, err);
}

/* Follows redirects and answers one challenge. 0 when all came. */
static int try_once(struct fetch *f, const char *first, const char *accept, char ret_type[static 128], struct err *err)
{
    AUTO_FREE char *url = mem_strdup(first);
    bool asked_again = false;
    for (int hop = 0; hop <= REGISTRY_HOPS; hop++) {
        char host[REFERENCE_HOST_MAX];
        struct http_answer a;
        bool home = http_url_host(url, host) && strcmp(host, f->r->host) == 0 &&
                    (strncmp(url, "https:", 6) == 0 || f->r->plain);
        if (registry_ask(f, url, accept, home, &a, err) < 0)
            return -1;
        int r = 0;
        f->wait_s = a.retry_after_s;
        if (a.status == 200 || a.status == 206) {
            memcpy(ret_type, a.content_type, sizeof(a.content_type));
            http_answer_fini(&a);
            return 0;
        }
        if (a.status == 401 && home && !asked_again) {
            asked_again = true;
            r = registry_authenticate(f->r, &a.challenge, err);
        } else if (a.status == 301 || a.status == 302 || a.status == 303 || a.status == 307 || a.status == 308) {
            char *next = follow(url, a.location);
            if (next) {
                mem_free(url);
                url = next;
            } else {
                r = err_set(err, ERR_FAILED_PRECONDITION, "%.80s redirects to nowhere for %s", host, f->what);
            }
        } else {
            r = registry_refused(f, &a, err);
        }
        http_answer_fini(&a);
        if (r < 0)
            return -1;
    }
    return err_set(err, ERR_FAILED_PRECONDITION, "%.80s redirects more than %d times for %s", f->r->host, REGISTRY_HOPS,
                   f->what);
}

/* ---- again ---- */

static int pause_before(struct fetch *f, unsigned fails, struct err *err)
{
    const struct registry_config *o = &f->r->config;
    uint64_t ms = MIN((uint64_t)BACKOFF_MS << MIN(fails, 10U), (uint64_t)BACKOFF_MAX_MS);
    if (f->wait_s)
        ms = MAX(ms, MIN(f->wait_s, (unsigned)RETRY_AFTER_MAX_S) * 1000ULL);
    usec_t until = clock_mono() + ms * USEC_PER_MS;
    if (until > o->until)
        return -1; /* with the error that there is */
    while (clock_mono() < until) {
        const struct timespec step = {.tv_nsec = 50 * 1000000};
        if (o->canceled(o->ctx))
            return err_set(err, ERR_CANCELED, "canceled");
        (void)nanosleep(&step, NULL);
    }
    return 0;
}

static int registry_fetch(struct fetch *f, const char *url, const char *accept, char ret_type[static 128],
                          struct err *err)
{
    uint64_t before = 0;
    for (unsigned fails = 0;; fails++) {
        f->wait_s = 0;
        if (f->whole) {
            buf_clear(f->whole);
            f->got = 0;
        }
        if (try_once(f, url, accept, ret_type, err) == 0)
            break;
        if (f->size != UINT64_MAX && f->got == f->size)
            break;
        if (!f->whole && f->got - before >= PROGRESS_BYTES)
            fails = 0;
        before = f->got;
        if (err->code != ERR_UNAVAILABLE || fails + 1 >= REGISTRY_TRIES || pause_before(f, fails, err) < 0)
            return -1;
    }
    if (f->size != UINT64_MAX && f->got != f->size)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s has %llu bytes, its manifest says %llu", f->what,
                       (unsigned long long)f->got, (unsigned long long)f->size);
    return 0;
}

/* ---- what is fetched ---- */

static int registry_keep(void *ctx, const void *p, size_t n, struct err *err)
{
    return buf_append(ctx, p, n) < 0
               ? err_set(err, ERR_OUT_OF_RANGE, "the manifest is larger than %d bytes", MANIFEST_BYTES_MAX)
               : 0;
}

int registry_manifest(struct registry *r, const char *name, struct buf *ret_text, char ret_type[static 128],
                      struct err *err)
{
    struct fetch f = {.r = r,
                      .fn = registry_keep,
                      .ctx = ret_text,
                      .whole = ret_text,
                      .size = UINT64_MAX,
                      .max = MANIFEST_BYTES_MAX,
                      .what = "manifest"};
    AUTO_FREE char *url = mem_printf("%s://%s/v2/%s/manifests/%s", r->plain ? "http" : "https",
                                     reference_server(r->config.ref), r->config.ref->path, name);
    char digest[DIGEST_TEXT_MAX];
    if (registry_fetch(&f, url, manifest_accept, ret_type, err) < 0)
        return -1;
    digest_of(buf_str(ret_text), digest);
    if (digest_is(str_of(name)) && strcmp(name, digest) != 0)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "%.80s gave a manifest that is not the one asked for: its digest is %s", r->host, digest);
    return 0;
}

int registry_blob(struct registry *r, const struct image_blob *blob, registry_fn fn, void *ctx, struct err *err)
{
    struct fetch f = {
        .r = r, .fn = fn, .ctx = ctx, .size = blob->size, .max = UINT64_MAX, .what = "layer or configuration"};
    char type[128];
    AUTO_FREE char *url = mem_printf("%s://%s/v2/%s/blobs/%s", r->plain ? "http" : "https",
                                     reference_server(r->config.ref), r->config.ref->path, blob->digest);
    return registry_fetch(&f, url, NULL, type, err);
}
