/* SPDX-License-Identifier: Apache-2.0 */
#include "here/egress.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/mem.h"
#include "wire/egress.h"
#include "wire/vault.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { EGRESS_SECRETS_MAX = 64, EGRESS_ANSWER_MS = 10000 };

static NORETURN void egress_child_run(const char *program, const char *trust, int control, int vault, int state)
{
    char fds[3][16], owner[16];
    const int all[] = {control, vault, state};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        (void)snprintf(fds[i], sizeof(fds[i]), "%d", all[i]);
        if (fd_cloexec(all[i], false) < 0)
            _exit(1);
    }
    (void)snprintf(owner, sizeof(owner), "%u", getuid());
    const char *argv[] = {program, "--control-fd",
                          fds[0],  "--vault-fd",
                          fds[1],  "--state-fd",
                          fds[2],  "--owner-uid",
                          owner,   "--log-level",
                          "3",     trust ? "--trust" : NULL,
                          trust,   NULL};
    static char *const environment[] = {NULL};
    child_unblock();
    (void)setpgid(0, 0); /* what the terminal says is for the command */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0)
        (void)execve(program, (char *const *)(uintptr_t)argv, environment);
    (void)dprintf(STDERR_FILENO, "cove here: %s: %s\n", program, strerror(errno));
    _exit(1);
}

static int egress_child_vault(const struct egress_child *e, bool is_client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/s", e->memory);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr *to = (const struct sockaddr *)&address;
    bool ok = is_client ? connect(fd, to, sizeof(address)) == 0
                        : bind(fd, to, sizeof(address)) == 0 && listen(fd, EGRESS_SECRETS_MAX) == 0;
    return ok ? fd : fd_close(fd);
}

static int egress_child_order(const struct egress_child *e, uint32_t type, const int *fds, size_t n)
{
    struct egress_order o;
    memset(&o, 0, sizeof(o));
    o.type = type;
    if (type == EGRESS_NET)
        (void)snprintf(o.id, sizeof(o.id), "%s", e->id);
    return fd_send(e->control, &o, sizeof(o), fds, n);
}

int egress_child_start(struct egress_child *e, const char *program, const char *trust, int *fds, struct err *err)
{
    int control[2] = {-1, -1}, link[2] = {-1, -1};
    e->memory = TAKE_FD(fds[EGRESS_NET_FDS]);
    id_sandbox(e->id);
    AUTO_CLOSE int vault = egress_child_vault(e, false);
    int r = vault < 0 ? -errno : 0;
    if (r == 0 && (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0 ||
                   socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0))
        r = -errno;
    e->control = control[0];
    e->link = link[0];
    e->pid = r ? -1 : fork();
    if (e->pid == 0)
        egress_child_run(program, trust, control[1], vault, e->memory);
    r = r ? r : e->pid < 0 ? -errno : egress_child_order(e, EGRESS_NET, fds, EGRESS_NET_FDS);
    r = r ? r : egress_child_order(e, EGRESS_API, &link[1], 1);
    for (size_t i = 0; i < EGRESS_NET_FDS; i++)
        fds[i] = fd_close(fds[i]);
    (void)fd_close(control[1]);
    (void)fd_close(link[1]);
    e->inject = json_array();
    return r < 0 ? err_errno(err, r, "start %s", program) : 0;
}

/* ---- secrets ---- */

int egress_child_secret(struct egress_child *e, const char *value, const char *sentinel, const json_t *hosts,
                        struct err *err)
{
    char name[32], answer[1024];
    (void)snprintf(name, sizeof(name), "here_%zu", json_array_size(e->inject));
    AUTO_BUF struct buf request = BUF_INIT(VAULT_REQUEST_MAX);
    if (strlen(value) > VAULT_VALUE_MAX || !value[0])
        return err_set(err, ERR_INVALID_ARGUMENT, "what is masked has 1 to %d bytes", VAULT_VALUE_MAX);
    vault_request_append(&request, &(struct vault_request){VAULT_SET, str_of(name), str_of(value)});
    AUTO_CLOSE int fd = egress_child_vault(e, true);
    int r = fd < 0 ? -errno : fd_write_all(fd, buf_data(&request), buf_len(&request));
    mem_wipe(buf_data(&request), buf_len(&request));
    size_t n = 0;
    for (ssize_t got = 1; r == 0 && got > 0 && n<sizeof(answer); n += got> 0 ? (size_t)got : 0)
        got = read(fd, answer + n, sizeof(answer) - n);
    struct vault_answer said;
    if (r < 0 || vault_answer_parse(str_n(answer, n), &said) < 0)
        return err_set(err, ERR_UNAVAILABLE, "cove-egress does not take secrets");
    if (said.code != ERR_OK)
        return err_set(err, said.code, "%.*s", STR_ARG(said.message));
    JSON_FOREACH (host, hosts)
        (void)json_array_append_new(e->inject, json_pack("{s:O,s:[{s:s,s:s}]}", "host", host, "placeholders",
                                                         "sentinel", sentinel, "secret", name));
    return 0;
}

/* ---- policies ---- */

json_t *egress_child_read(struct egress_child *e)
{
    AUTO_FREE char *room = mem_alloc(EGRESS_MESSAGE_MAX);
    ssize_t n = recv(e->link, room, EGRESS_MESSAGE_MAX, 0);
    return n > 0 ? json_loadb(room, (size_t)n, JSON_REJECT_DUPLICATES, NULL) : NULL;
}

int egress_child_policy(struct egress_child *e, const json_t *rules, struct buf *ret_ca, egress_child_told told,
                        void *ctx, struct err *err)
{
    json_t *policy = json_pack("{s:s,s:O}", "default", "deny", "rules", rules);
    if (json_array_size(e->inject))
        (void)json_object_set(policy, "inject", e->inject);
    json_t *message =
        json_pack("{s:s,s:I,s:s,s:o}", "op", "policy", "tag", (json_int_t)++e->tag, "id", e->id, "policy", policy);
    AUTO_FREE char *text = json_dumps(message, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(message);
    if (!text || send(e->link, text, strlen(text), MSG_NOSIGNAL) < 0)
        return err_set(err, ERR_UNAVAILABLE, "cove-egress is gone");
    struct pollfd p = {.fd = e->link, .events = POLLIN};
    while (poll(&p, 1, EGRESS_ANSWER_MS) == 1) {
        json_t *answer = egress_child_read(e);
        const char *op = json_string_value(json_object_get(answer, "op"));
        bool is_answer = op && json_integer_value(json_object_get(answer, "tag")) == e->tag;
        int r = is_answer && strcmp(op, "done") == 0 ? 1 : is_answer || !op ? -1 : 0;
        if (r == 1)
            buf_append_cstr(ret_ca, json_string_value(json_object_get(answer, "ca_pem"))
                                        ? json_string_value(json_object_get(answer, "ca_pem"))
                                        : "");
        else if (r < 0)
            (void)err_set(err, ERR_UNAVAILABLE, "cove-egress: %.160s",
                          is_answer ? json_string_value(json_object_get(answer, "message")) : "it ended");
        else
            told(ctx, answer);
        json_decref(answer);
        if (r)
            return r > 0 ? 0 : -1;
    }
    return err_set(err, ERR_DEADLINE_EXCEEDED, "cove-egress did not answer");
}

void egress_child_stop(struct egress_child *e)
{
    child_kill(e->pid);
    e->control = fd_close(e->control);
    e->link = fd_close(e->link);
    e->memory = fd_close(e->memory);
    json_decref(e->inject);
}
