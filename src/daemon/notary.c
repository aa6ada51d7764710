/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/notary.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "event/evidence.h"
#include "store/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_MS = 10 * 60 * 1000, HEADS_DAYS = 30, DAY_LEN = 10 };

struct notary {
    const char *store_path, *data_dir;
    struct evidence_key *key;
    uv_timer_t timer;
    uv_work_t work;
    bool is_working;
};

static char *heads_path(const struct notary *n, const char *day)
{
    return mem_printf("%s/heads/%.*s.json", n->data_dir, DAY_LEN, day);
}

static bool is_day(struct str s)
{
    usec_t ignored;
    char text[CLOCK_TEXT_MAX];
    (void)snprintf(text, sizeof(text), "%.*sT00:00:00Z", STR_ARG_MAX(s, DAY_LEN));
    return s.n == DAY_LEN && clock_parse(str_of(text), &ignored) == 0;
}

static int notary_read_heads(const struct notary *n, struct str day, struct buf *ret, struct err *err)
{
    if (!is_day(day))
        return err_set(err, ERR_INVALID_ARGUMENT, "a day is written as 2026-11-23");
    AUTO_FREE char *path = heads_path(n, day.p);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    int r = fd < 0 ? -errno : fd_read_all(fd, ret);
    if (r == -ENOENT)
        return err_set(err, ERR_NOT_FOUND, "nothing was signed on %.*s, or it is older than %d days", STR_ARG(day),
                       HEADS_DAYS);
    return r < 0 ? err_errno(err, r, "%s", path) : 0;
}

int notary_sign(void *notary, const char *what, struct buf *ret, struct err *err)
{
    const struct notary *n = notary;
    AUTO(store_close) struct store *store = NULL;
    AUTO(event_log_close) struct event_log *log = NULL;
    if (strcmp(what, "key") == 0)
        return evidence_key_json(n->key, ret, err);
    if (str_starts(str_of(what), STR("heads/")))
        return notary_read_heads(n, str_of(what + strlen("heads/")), ret, err);
    if (store_open_reader(n->store_path, &store, err) < 0 || event_log_open(store, &log, err) < 0)
        return -1;
    return strcmp(what, "heads") == 0 ? evidence_of_heads(log, n->key, ret, err)
                                      : evidence_of_log(log, what, n->key, ret, err);
}

/* ---- every day ---- */

static int notary_write_heads(const struct notary *n, const char *path, struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(EVIDENCE_MAX);
    AUTO_FREE char *dir = mem_printf("%s/heads", n->data_dir), *fresh = mem_printf("%s.new", path);
    if (notary_sign((void *)n, "heads", &b, err) < 0)
        return -1;
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "make %s", dir);
    AUTO_CLOSE int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, buf_data(&b), buf_len(&b));
    if (r == 0 && (fsync(fd) < 0 || rename(fresh, path) < 0))
        r = -errno;
    return r < 0 ? err_errno(err, r, "%s", path) : 0;
}

static void notary_work(uv_work_t *work)
{
    const struct notary *n = container_of(work, struct notary, work);
    char day[CLOCK_TEXT_MAX];
    struct err err;
    usec_t now = clock_real(), span = HEADS_DAYS * 24ULL * 3600 * USEC_PER_SEC;
    clock_format(now, 0, day);
    AUTO_FREE char *path = heads_path(n, day);
    if (access(path, F_OK) == 0)
        return;
    if (notary_write_heads(n, path, &err) < 0)
        log_warn("sign the heads of all logs: %s", err.msg);
    clock_format(now - MIN(now, span), 0, day);
    AUTO_FREE char *old = heads_path(n, day);
    (void)unlink(old);
}

static void notary_done(uv_work_t *work, int status UNUSED)
{
    container_of(work, struct notary, work)->is_working = false;
}

static void notary_on_timer(uv_timer_t *timer)
{
    struct notary *n = container_of(timer, struct notary, timer);
    if (!n->is_working)
        n->is_working = uv_queue_work(timer->loop, &n->work, notary_work, notary_done) == 0;
}

int notary_start(uv_loop_t *loop, const char *store_path, const char *data_dir, struct notary **ret_notary,
                 struct err *err)
{
    struct notary *n = mem_new(struct notary);
    AUTO_FREE char *key = mem_printf("%s/evidence.key", data_dir);
    n->store_path = store_path;
    n->data_dir = data_dir;
    if (evidence_key_open(key, &n->key, err) < 0) {
        mem_free(n);
        return -1;
    }
    (void)uv_timer_init(loop, &n->timer);
    (void)uv_timer_start(&n->timer, notary_on_timer, LOOK_MS / 60, LOOK_MS);
    *ret_notary = n;
    return 0;
}

void notary_stop(struct notary *n)
{
    if (n && !uv_is_closing((uv_handle_t *)&n->timer))
        uv_close((uv_handle_t *)&n->timer, NULL);
}

void notary_free(struct notary *n)
{
    if (!n)
        return;
    evidence_key_free(n->key);
    mem_free(n);
}
