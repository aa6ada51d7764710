/* SPDX-License-Identifier: Apache-2.0 */
#include "image/report.h"
#include "base/clock.h"
#include "base/mem.h"
#include "image/job.h"

#include <poll.h>
#include <sys/socket.h>

enum { SEND_MS = 30000, LOOK_MS = 50 };

struct report {
    int fd;
    bool canceled;
    usec_t looked, told;
    char layer[80]; /* told of last */
    unsigned warnings;
};

struct report *report_new(int fd)
{
    struct report *r = mem_new(struct report);
    r->fd = fd;
    return r;
}

void report_free(struct report *r)
{
    mem_free(r);
}

/* one of JOB_CODES */
static const char *report_code(enum err_code code)
{
    static const char *const codes[ERR_CODE_MAX] = {[ERR_NOT_FOUND] = "not_found",
                                                    [ERR_UNAUTHENTICATED] = "unauthenticated",
                                                    [ERR_PERMISSION_DENIED] = "denied",
                                                    [ERR_INVALID_ARGUMENT] = "invalid",
                                                    [ERR_UNIMPLEMENTED] = "unsupported",
                                                    [ERR_OUT_OF_RANGE] = "too_large",
                                                    [ERR_RESOURCE_EXHAUSTED] = "full",
                                                    [ERR_UNAVAILABLE] = "unavailable",
                                                    [ERR_FAILED_PRECONDITION] = "unavailable",
                                                    [ERR_DEADLINE_EXCEEDED] = "timeout",
                                                    [ERR_CANCELED] = "canceled"};
    return codes[code] ? codes[code] : "internal";
}

bool report_canceled(struct report *r)
{
    usec_t now = clock_mono();
    if (!r->canceled && now - r->looked >= LOOK_MS * USEC_PER_MS) {
        struct pollfd p = {.fd = r->fd, .events = POLLRDHUP};
        r->looked = now;
        r->canceled = poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
    }
    return r->canceled;
}

/* The whole line, or the job is canceled. */
static void report_tell(struct report *r, const struct buf *line)
{
    struct str rest = buf_str(line);
    usec_t until = clock_mono() + SEND_MS * USEC_PER_MS;
    if (buf_error(line))
        r->canceled = true;
    while (rest.n > 0 && !r->canceled) {
        ssize_t n = send(r->fd, rest.p, rest.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            rest = str_sub(rest, (size_t)n);
            continue;
        }
        struct pollfd p = {.fd = r->fd, .events = POLLOUT};
        usec_t now = clock_mono();
        bool wait = n < 0 && (errno == EAGAIN || errno == EINTR) && now < until;
        if (!wait || poll(&p, 1, (int)((until - now) / USEC_PER_MS) + 1) < 0)
            r->canceled = true;
    }
}

void report_resolve(struct report *r)
{
    AUTO_BUF struct buf line = BUF_INIT(256);
    buf_append_cstr(&line, "{\"phase\":\"resolve\"}\n");
    report_tell(r, &line);
}

static void tell_layer(struct report *r, const char *phase, const struct report_layer *l, const char *counts)
{
    AUTO_BUF struct buf line = BUF_INIT(JOB_LINE_MAX);
    buf_printf(&line, "{\"phase\":\"%s\",\"layer\":", phase);
    buf_append_json_string(&line, str_of(l->name));
    buf_printf(&line, ",\"index\":%zu,\"layers\":%zu,\"unpacked\":%llu%s}\n", l->index, l->layers,
               (unsigned long long)l->unpacked, counts);
    report_tell(r, &line);
}

void report_pull(struct report *r, const struct report_layer *l)
{
    usec_t now = clock_mono();
    AUTO_BUF struct buf counts = BUF_INIT(128);
    bool same = strncmp(r->layer, l->name, sizeof(r->layer) - 1) == 0;
    if (same && now - r->told < JOB_PROGRESS_MS * USEC_PER_MS)
        return;
    r->told = now;
    memset(r->layer, 0, sizeof(r->layer));
    memcpy(r->layer, l->name, strnlen(l->name, sizeof(r->layer) - 1));
    buf_printf(&counts, ",\"bytes\":%llu,\"of\":%llu%c", (unsigned long long)l->bytes, (unsigned long long)l->of, '\0');
    tell_layer(r, "pull", l, buf_data(&counts));
}

void report_unpacked(struct report *r, const struct report_layer *l)
{
    AUTO_BUF struct buf counts = BUF_INIT(64);
    buf_printf(&counts, ",\"entries\":%llu%c", (unsigned long long)l->entries, '\0');
    tell_layer(r, "unpack", l, buf_data(&counts));
}

void report_warning(struct report *r, const char *text)
{
    AUTO_BUF struct buf line = BUF_INIT(JOB_LINE_MAX);
    if (r->warnings++ >= JOB_WARNINGS_MAX)
        return;
    buf_append_cstr(&line, "{\"warning\":");
    buf_append_json_string(&line, str_of(text));
    buf_append_cstr(&line, "}\n");
    report_tell(r, &line);
}

int report_ok(struct report *r, const struct report_result *result)
{
    AUTO_BUF struct buf line = BUF_INIT(JOB_LINE_MAX);
    buf_append_cstr(&line, "{\"ok\":true,\"digest\":");
    buf_append_json_string(&line, str_of(result->digest));
    buf_append_cstr(&line, ",\"config\":");
    buf_append_str(&line, result->config);
    buf_printf(&line, ",\"bytes\":%llu,\"entries\":%llu}\n", (unsigned long long)result->bytes,
               (unsigned long long)result->entries);
    report_tell(r, &line);
    return r->canceled ? -1 : 0;
}

void report_error(struct report *r, const struct err *err)
{
    AUTO_BUF struct buf line = BUF_INIT(JOB_LINE_MAX);
    buf_printf(&line, "{\"error\":{\"code\":\"%s\",\"message\":", report_code(err->code));
    buf_append_json_string(&line, str_of(err->msg));
    buf_append_cstr(&line, "}}\n");
    r->canceled = false; /* whoever half closed may still read */
    report_tell(r, &line);
}
