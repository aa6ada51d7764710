/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/qmp.h"
#include "base/fd.h"

#include <jansson.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAUSE_USEC = 1000 };

struct qmp_answer qmp_judge(struct str line)
{
    struct qmp_answer a = {.kind = QMP_BAD};
    json_t *root = json_loadb(line.p ? line.p : "", line.n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *error = json_object_get(root, "error"), *is = json_object_get(root, "return");
    const json_t *version = json_object_get(json_object_get(json_object_get(root, "QMP"), "version"), "qemu");
    const char *text = NULL;
    if (json_is_object(version)) {
        a.kind = QMP_GREETING;
        (void)snprintf(a.text, sizeof(a.text), "%lld.%lld",
                       (long long)json_integer_value(json_object_get(version, "major")),
                       (long long)json_integer_value(json_object_get(version, "minor")));
    } else if (json_is_object(error)) {
        a.kind = QMP_ERROR;
        text = json_string_value(json_object_get(error, "desc"));
    } else if (is) {
        a.kind = QMP_RETURN;
        text = json_string_value(json_object_get(is, "status"));
    } else if (json_is_string(json_object_get(root, "event"))) {
        a.kind = QMP_EVENT;
    }
    if (text)
        (void)snprintf(a.text, sizeof(a.text), "%s", text);
    json_decref(root);
    return a;
}

/* The next line that isn't an event. */
static int qmp_read(struct vmm_monitor *m, usec_t until, struct qmp_answer *ret_answer)
{
    for (usec_t now; (now = clock_mono()) < until;) {
        char *end = memchr(m->in, '\n', m->n_in);
        if (end) {
            const size_t n = (size_t)(end - m->in) + 1;
            *ret_answer = qmp_judge(str_n(m->in, n));
            m->n_in -= n;
            memmove(m->in, end + 1, m->n_in);
            if (ret_answer->kind != QMP_EVENT)
                return ret_answer->kind == QMP_BAD ? -EPROTO : 0;
            continue;
        }
        struct pollfd p = {.fd = m->fd, .events = POLLIN};
        if (m->n_in == sizeof(m->in))
            return -EPROTO;
        if (poll(&p, 1, (int)((until - now) / USEC_PER_MS) + 1) <= 0)
            continue;
        ssize_t n = recv(m->fd, m->in + m->n_in, sizeof(m->in) - m->n_in, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return n ? -errno : -ECONNRESET;
        m->n_in += n > 0 ? (size_t)n : 0;
    }
    return -ETIMEDOUT;
}

/* given: a descriptor that goes with it, or NULL. */
static int qmp_do(struct vmm_monitor *m, const char *command, const int *given, usec_t until,
                  struct qmp_answer *ret_answer)
{
    int r = fd_send(m->fd, command, strlen(command), given, given != NULL);
    r = r ? r : qmp_read(m, until, ret_answer);
    if (r < 0)
        return r;
    return ret_answer->kind == QMP_RETURN ? 0 : ret_answer->kind == QMP_ERROR ? -EREMOTEIO : -EPROTO;
}

static int qmp_open(struct vmm_monitor *m, usec_t until, struct qmp_answer *ret_answer)
{
    int r = qmp_read(m, until, ret_answer);
    if (r == 0 && ret_answer->kind != QMP_GREETING)
        r = -EPROTO;
    if (r == 0)
        (void)snprintf(m->version, sizeof(m->version), "%.15s", ret_answer->text);
    return r ? r : qmp_do(m, "{\"execute\":\"qmp_capabilities\"}", NULL, until, ret_answer);
}

int qmp_ask(struct vmm_monitor *m, enum vmm_order order, usec_t until, char ret_why[static VMM_WHY_MAX])
{
    /* Devices alone, whatever kind of memory there is: their name says who needed that first. */
    static const char *const commands[] = {
        [VMM_HALT] = "{\"execute\":\"stop\"}",
        [VMM_SAVE] = ("{\"execute\":\"xen-save-devices-state\",\"arguments\":{\"filename\":\"" VMM_DEVICES
                      "\",\"live\":false}}"),
        [VMM_RUN] = "{\"execute\":\"cont\"}",
        [VMM_AWAIT] = "{\"execute\":\"query-status\"}",
        [VMM_TAKE] = "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"given\"}}",
        [VMM_DROP] = "{\"execute\":\"closefd\",\"arguments\":{\"fdname\":\"given\"}}",
    };
    struct qmp_answer a = {.text = ""};
    int r = m->version[0] ? 0 : qmp_open(m, until, &a);
    do {
        r = r ? r : qmp_do(m, commands[order], order == VMM_TAKE ? &m->given : NULL, until, &a);
    } while (r == 0 && order == VMM_AWAIT && strcmp(a.text, "inmigrate") == 0 && usleep(PAUSE_USEC) == 0);
    if (r < 0)
        (void)snprintf(ret_why, VMM_WHY_MAX, "%s", r == -EREMOTEIO ? a.text : strerror(-r));
    return r;
}
