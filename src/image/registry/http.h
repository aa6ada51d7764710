/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET requests to registries and to where these point, one at a time, over HTTP/1.1.
 *
 *  1. What is dialled was judged: public addresses but this machine's own, or those of a host that the job allows by
 *     name. It holds for every hop, and for the address that the name has at that moment.
 *  2. No plain HTTP but to hosts that the job allows it for. Nothing is read from the environment: no proxy, no netrc,
 *     no cookies.
 *  3. No redirect is followed here: who asked sees it, and decides what the next request carries.
 *  4. Every size is bounded; a peer that stalls is given up.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "image/registry/challenge.h"
#include "image/registry/reference.h"

enum {
    HTTP_URL_MAX = 16 * 1024,
    HTTP_REASON_MAX = 4096,
    HTTP_HEADERS_MAX = 256,
    HTTP_CONNECT_S = 15,
    HTTP_HOSTS_MAX = 64
};

/* Hosts that a job allows more. */
struct http_host {
    char name[REFERENCE_HOST_MAX];
    uint16_t port; /* 0: any */
    bool plain;    /* spoken to without TLS */
};

struct http_hosts {
    size_t n;
    struct http_host list[HTTP_HOSTS_MAX];
};

/* An entry of the job's "insecure": "host[:port]", or "https://host[:port]". */
bool http_hosts_add(struct http_hosts *hosts, struct str entry);
const struct http_host *http_hosts_find(const struct http_hosts *hosts, const char *name, uint16_t port);

struct http_config {
    struct str ca;                  /* certificates, PEM; borrowed */
    const struct http_hosts *hosts; /* borrowed */
    unsigned stall_s;
    usec_t until; /* monotonic; nothing goes on beyond */
    bool (*canceled)(void *ctx);
    void *ctx;
};

struct http;
int http_new(const struct http_config *config, struct http **ret_http,
             struct err *err) WARN_UNUSED; /* opens files: before the jail */
void http_free(struct http *h);
DEFINE_AUTO(struct http *, http_free)

/* May be set after http_new(), which the jail is entered behind. */
void http_set(struct http *h, const struct http_config *config);

struct registry_request {
    const char *url;
    const char *accept;        /* or NULL */
    const char *authorization; /* the header's value, or NULL */
    uint64_t offset;           /* where the body is to begin, whether the server can do that or not */
    uint64_t max_bytes;        /* from there on: beyond is ERR_OUT_OF_RANGE */
    int (*body)(void *ctx, const void *p, size_t n, struct err *err); /* of answers 200 and 206 alone */
    void *ctx;
};

struct http_answer {
    int status;
    char content_type[128]; /* without parameters, lower case; "" */
    struct challenge challenge;
    char location[HTTP_URL_MAX]; /* as sent */
    unsigned retry_after_s;      /* 0: not said */
    uint64_t length;             /* of the body as announced; UINT64_MAX: not said */
    uint64_t range_from;         /* 206: where it begins */
    struct buf reason;           /* the first bytes of the body of any other answer than 200 and 206 */
};
void http_answer_fini(struct http_answer *a);

/*
 * 0: the server answered, whatever; a 206 or 200 was given to body in full. -1: ERR_UNAVAILABLE may be tried again;
 * ERR_PERMISSION_DENIED: not allowed to go there; ERR_CANCELED, ERR_DEADLINE_EXCEEDED; or what body said.
 */
int http_get(struct http *h, const struct registry_request *q, struct http_answer *ret_answer,
             struct err *err) WARN_UNUSED;

/* "host[:port]" of an absolute URL, lower case; the port is left out when it is the scheme's own. False: no URL that
 * http_get() would take. */
bool http_url_host(const char *url, char ret_host[static REFERENCE_HOST_MAX]);
