/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/request.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "image/job.h"

#include <poll.h>

enum { SECRET_MAX = 16 * 1024, REQUEST_WAIT_MS = 10000 };

static int request_bad(struct err *err, const char *what)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "the request: %s", what);
}

static int refuse_unknown(const json_t *json, const char *const *known, struct err *err)
{
    JSON_FOREACH_MEMBER (key, value, json) {
        bool found = false;
        for (const char *const *k = known; *k; k++)
            found |= strcmp(*k, key) == 0;
        if (!found)
            return err_set(err, ERR_INVALID_ARGUMENT, "the request: \"%.60s\" is not known", key);
    }
    return 0;
}

/* NULL when absent; a secret goes into a header and holds nothing that could end it. */
static int take_secret(const json_t *json, const char *key, char **ret_text, struct err *err)
{
    const json_t *value = json_object_get(json, key);
    if (!value)
        return 0;
    const char *text = json_string_value(value);
    if (!text || json_string_length(value) > SECRET_MAX)
        return request_bad(err, "credentials are texts of at most 16 KiB");
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return request_bad(err, "credentials hold control characters");
    *ret_text = mem_strdup(text);
    return 0;
}

static int take_auth(const json_t *json, struct job_request *q, struct err *err)
{
    static const char *const known[] = {"username", "password", "token", NULL};
    if (!json)
        return 0;
    if (!json_is_object(json))
        return request_bad(err, "\"auth\" is no object");
    if (refuse_unknown(json, known, err) < 0 || take_secret(json, "username", &q->username, err) < 0 ||
        take_secret(json, "password", &q->password, err) < 0 || take_secret(json, "token", &q->token, err) < 0)
        return -1;
    if (!q->username != !q->password || !q->username == !q->token)
        return request_bad(err, "\"auth\" holds either \"username\" and \"password\", or \"token\"");
    if (q->username && strchr(q->username, ':'))
        return request_bad(err, "a user name holds no \":\"");
    if (q->token && (!q->token[0] || strchr(q->token, ' ')))
        return request_bad(err, "a token is one word");
    return 0;
}

static int take_hosts(const json_t *json, struct job_request *q, struct err *err)
{
    if (!json)
        return 0;
    if (!json_is_array(json))
        return request_bad(err, "\"insecure\" is no list");
    JSON_FOREACH_AT (i, entry, json) {
        if (!json_is_string(entry) || !http_hosts_add(&q->hosts, json_str(entry)))
            return err_set(err, ERR_INVALID_ARGUMENT,
                           "the request: entry %zu of \"insecure\" is not host[:port], or there are more than %d", i,
                           HTTP_HOSTS_MAX);
    }
    return 0;
}

static int take_what(const json_t *json, struct job_request *q, struct err *err)
{
    const json_t *image = json_object_get(json, "image"), *archive = json_object_get(json, "archive"),
                 *ref = json_object_get(json, "ref");
    q->archive = json_is_true(archive);
    if (archive && !json_is_boolean(archive))
        return request_bad(err, "\"archive\" is neither true nor false");
    if (q->archive == (image != NULL))
        return request_bad(err, "it holds either \"image\" or \"archive\":true");
    if (ref) {
        size_t n = json_string_length(ref);
        if (!q->archive || !json_is_string(ref) || n == 0 || n >= sizeof(q->ref))
            return request_bad(err, "\"ref\" is the name of an image in an archive");
        memcpy(q->ref, json_string_value(ref), n + 1);
    }
    if (q->archive)
        return 0;
    if (!json_is_string(image))
        return request_bad(err, "\"image\" is no text");
    return reference_parse(json_str(image), &q->image, err);
}

static int request_take(const json_t *json, struct job_request *q, struct err *err)
{
    static const char *const known[] = {"image", "archive", "ref", "platform", "auth", "insecure", NULL};
    const json_t *platform = json_object_get(json, "platform");
    if (!json_is_object(json))
        return request_bad(err, "it is not a JSON object");
    if (refuse_unknown(json, known, err) < 0 || take_what(json, q, err) < 0 ||
        take_auth(json_object_get(json, "auth"), q, err) < 0 ||
        take_hosts(json_object_get(json, "insecure"), q, err) < 0)
        return -1;
    if (!platform || json_is_null(platform)) {
        platform_of_machine(&q->platform);
        return 0;
    }
    if (!json_is_string(platform))
        return request_bad(err, "\"platform\" is no text");
    return platform_parse(json_str(platform), &q->platform, err);
}

int job_request_parse(struct str line, struct job_request *ret_request, struct err *err)
{
    struct job_request q = {.archive_fd = -1};
    json_error_t error;
    json_t *json = json_loadb(line.p ? line.p : "", line.n, JSON_REJECT_DUPLICATES, &error);
    int r = json ? request_take(json, &q, err)
                 : err_set(err, ERR_INVALID_ARGUMENT, "the request is not valid JSON: %.100s", error.text);
    json_decref(json);
    if (r < 0)
        job_request_fini(&q);
    else
        *ret_request = q;
    return r;
}

static void drop_secret(char **secret)
{
    if (*secret)
        mem_wipe(*secret, strlen(*secret));
    mem_free(*secret);
    *secret = NULL;
}

void job_request_fini(struct job_request *q)
{
    drop_secret(&q->username);
    drop_secret(&q->password);
    drop_secret(&q->token);
    (void)fd_close(q->archive_fd);
    q->archive_fd = -1;
}

/* ---- the line ---- */

static int read_line(int sock, struct buf *line, int *archive_fd, struct err *err)
{
    usec_t until = clock_mono() + REQUEST_WAIT_MS * USEC_PER_MS;
    for (;;) {
        char part[4096];
        int fd = -1;
        size_t n_fds = 0;
        struct pollfd p = {.fd = sock, .events = POLLIN};
        usec_t now = clock_mono();
        if (now >= until || poll(&p, 1, (int)((until - now) / USEC_PER_MS) + 1) <= 0)
            return request_bad(err, "it did not come within 10 s");
        ssize_t n = fd_recv(sock, part, sizeof(part), &fd, 1, &n_fds);
        if (n_fds == 1 && *archive_fd < 0)
            *archive_fd = fd;
        else if (n_fds == 1)
            (void)fd_close(fd);
        if (n <= 0)
            return n < 0 ? err_errno(err, (int)n, "read the request") : err_set(err, ERR_CANCELED, "no request came");
        if (buf_append(line, part, (size_t)n) < 0)
            return request_bad(err, "it is longer than 64 KiB");
        if (str_find_char(str_n(part, (size_t)n), '\n') >= 0)
            return 0;
    }
}

int job_request_read(int sock, struct job_request *ret_request, struct err *err)
{
    AUTO_BUF struct buf line = BUF_INIT(JOB_REQUEST_MAX);
    AUTO_CLOSE int fd = -1;
    struct job_request q = {.archive_fd = -1};
    int r = read_line(sock, &line, &fd, err);
    if (r == 0) {
        struct str text = buf_str(&line);
        text.n = (size_t)str_find_char(text, '\n');
        r = job_request_parse(text, &q, err);
    }
    if (buf_len(&line) > 0)
        mem_wipe(buf_data(&line), buf_len(&line));
    if (r < 0)
        return -1;
    if (q.archive != (fd >= 0)) {
        job_request_fini(&q);
        return request_bad(err, "an archive comes with a descriptor, an image without");
    }
    q.archive_fd = TAKE_FD(fd);
    *ret_request = q;
    return 0;
}
