/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cove-here, which `cove here` executes: one command of the caller's, on the caller's files, behind a boundary. This
 * process is the launcher: it makes the box, its way out, and waits; it is no boundary itself and holds no right that
 * the caller has not.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/path.h"
#include "here/box.h"
#include "here/bwrap.h"
#include "here/egress.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HERE_SAID = 1, HERE_EXPLAIN }; /* what is left to do after the options */
enum { STATUS_USAGE = 2, STATUS_COVE = 125, SETTINGS_MAX = 1 << 20, LINE_MAX_BYTES = 1 << 20, TERM_MS = 2000 };
enum { TOLD_HIGH = 64 * 1024, TOLD_MAX = 4 << 20, TOLD_QUIET_MS = 60, TOLD_LAST_MS = 1000, REFUSED_MAX = 8 };

struct here_masked {
    const struct settings_secret *secret; /* borrowed */
    const char *value;
    char *sentinel;
};

struct here {
    struct settings *settings;
    json_t *writes, *allows; /* of the command line: entries of allowWrite and allowedDomains */
    struct plan plan;
    struct egress_child egress;
    const char *home, *settings_path, *string;
    char cwd[4096], program_dir[4096];
    char *command_text;      /* what ignoreViolations looks at */
    int violations, control; /* -1: none */
    struct buf told;         /* what violations is still to get */
    json_t *refused;         /* hosts, for the person at the terminal; NULL: nobody is there */
    bool has_update;
    struct buf line; /* of the control descriptor */
    int link, signals;
    pid_t box;
    bool is_foreground;
    struct here_masked *masked;
    size_t n_masked;
    struct bwrap *bwrap; /* NULL: called as cove-here */
    json_t *environment; /* name -> value, of what differs; null: not there */
    struct err err;
};

static int here_find_programs(struct here *h)
{
    ssize_t n = readlink("/proc/self/exe", h->program_dir, sizeof(h->program_dir) - 1);
    char *slash = n > 0 ? strrchr(h->program_dir, '/') : NULL;
    if (!slash)
        return err_errno(&h->err, errno, "find this program");
    *slash = '\0';
    return 0;
}

/* Help, and the hint about what is wrong, are those of the command line. */
static int here_explain(const struct here *h, char **argv)
{
    AUTO_FREE char *program = mem_printf("%s/cove-cli", h->program_dir);
    AUTO_FREE char **again = NULL;
    size_t n = 0;
    while (argv[n])
        n++;
    again = mem_array(n + 2, sizeof(*again));
    again[0] = program;
    memcpy(again + 1, argv, n * sizeof(*argv));
    again[1] = (char[]){"here"};
    (void)execv(program, again);
    (void)fprintf(stderr, "cove here: %s: %s\n", program, strerror(errno));
    return STATUS_USAGE;
}

static int here_fail(const struct here *h)
{
    (void)fprintf(stderr, "%s: %s\n", h->bwrap ? "bwrap" : "cove here", h->err.msg);
    return h->bwrap ? 1 : STATUS_COVE;
}

/* ---- the command line and the settings ---- */

static int here_descriptor(struct here *h, const char *text, int *ret_fd)
{
    uint64_t n;
    if (str_to_u64(str_of(text), &n) < 0 || n < 3 || n > INT32_MAX || fcntl((int)n, F_SETFD, FD_CLOEXEC) < 0)
        return err_set(&h->err, ERR_INVALID_ARGUMENT, "%.20s is no open descriptor above 2", text);
    *ret_fd = (int)n;
    return 0;
}

static int here_options(struct here *h, int argc, char **argv)
{
    int wrong = 0;
    opterr = 0;
    h->writes = json_array();
    h->allows = json_array();
    static const struct option options[] = {{"settings", required_argument, NULL, 's'},
                                            {"command", required_argument, NULL, 'c'},
                                            {"write", required_argument, NULL, 'w'},
                                            {"allow", required_argument, NULL, 'A'},
                                            {"control-fd", required_argument, NULL, 'C'},
                                            {"violations-fd", required_argument, NULL, 'V'},
                                            {"debug", no_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'v'},
                                            {NULL, 0, NULL, 0}};
    for (int o; (o = getopt_long(argc, argv, "+s:c:w:dh", options, NULL)) != -1;) {
        if (o == 's')
            h->settings_path = optarg;
        else if (o == 'c')
            h->string = optarg;
        else if (o == 'w')
            (void)json_array_append_new(h->writes, json_string(optarg));
        else if (o == 'A')
            (void)json_array_append_new(h->allows, json_string(optarg));
        else if (o == 'v')
            return puts("cove " COVE_VERSION) < 0 ? -1 : HERE_SAID;
        else if (o == 'h' || o == '?')
            return HERE_EXPLAIN;
        else if (o == 'C')
            wrong |= here_descriptor(h, optarg, &h->control);
        else if (o == 'V')
            wrong |= here_descriptor(h, optarg, &h->violations);
    }
    if (wrong)
        return -1; /* not before all was read: --help comes first */
    if (!h->string && optind == argc)
        return err_set(&h->err, ERR_INVALID_ARGUMENT, "which command? For one: cove here make test");
    if (h->string && optind < argc)
        return err_set(&h->err, ERR_INVALID_ARGUMENT, "-c has the command already; after it there is no other");
    return 0;
}

/* What the command line allows beyond the file's settings, which are valid. */
static int here_widen(struct here *h, const struct buf *text)
{
    static const char none[] = "{\"network\":{\"allowedDomains\":[],\"deniedDomains\":[]},"
                               "\"filesystem\":{\"denyRead\":[],\"allowWrite\":[],\"denyWrite\":[]}}";
    if (!json_array_size(h->writes) && !json_array_size(h->allows))
        return 0;
    AUTO_JSON json_t *all =
        buf_len(text) ? json_loadb(buf_data(text), buf_len(text), 0, NULL) : json_loads(none, 0, NULL);
    json_t *writes = json_object_get(json_object_get(all, "filesystem"), "allowWrite");
    json_t *allows = json_object_get(json_object_get(all, "network"), "allowedDomains");
    if (json_array_extend(writes, h->writes) < 0 || json_array_extend(allows, h->allows) < 0)
        return err_set(&h->err, ERR_INVALID_ARGUMENT, "--write and --allow take text in UTF-8");
    AUTO_FREE char *wider = json_dumps(all, 0);
    settings_free(TAKE_PTR(h->settings));
    return settings_parse(wider, strlen(wider), &h->settings, &h->err);
}

static int here_settings(struct here *h)
{
    AUTO_FREE char *standard = mem_printf("%s/.srt-settings.json", h->home);
    AUTO_BUF struct buf text = BUF_INIT(SETTINGS_MAX);
    const char *path = h->settings_path ? h->settings_path : standard;
    struct stat st;
    int r = fd_read_file(AT_FDCWD, path, &text);
    const bool is_absent = (r == -ENOENT || r == -EISDIR) && !h->settings_path; /* a directory: what a box puts down */
    if (r < 0 && !is_absent)
        return err_errno(&h->err, r, "settings %s", path);
    r = settings_parse(is_absent ? NULL : buf_len(&text) ? buf_data(&text) : "", buf_len(&text), &h->settings, &h->err);
    if (r < 0)
        return err_prefix(&h->err, "settings %s", path);
    if (here_widen(h, &text) < 0)
        return -1;
    /* What a command could write there would hold for the next one. */
    settings_list_add(&h->settings->deny_write, standard);
    if (h->settings_path && stat(path, &st) == 0 && S_ISREG(st.st_mode))
        settings_list_add(&h->settings->deny_write, path);
    return 0;
}

/* What is connected for good. All other sockets can be given another address, in the network that they are of. */
static bool here_is_pipe(int fd)
{
    int family = 0, type = 0;
    struct sockaddr_storage peer;
    socklen_t n = sizeof(int), m = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &n) == 0 && family == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type != SOCK_DGRAM &&
           getpeername(fd, (struct sockaddr *)&peer, &m) == 0;
}

static int here_surroundings(struct here *h)
{
    const char *home = getenv("HOME");
    if ((!home || home[0] != '/') && !h->bwrap)
        return err_set(&h->err, ERR_FAILED_PRECONDITION, "HOME must name a directory: settings say ~");
    h->home = home;
    if (getuid() == 0 || geteuid() != getuid() || getegid() != getgid())
        return err_set(&h->err, ERR_FAILED_PRECONDITION,
                       "root's id owns the machine's settings: run this as an ordinary user, or use 'cove run'");
    if (!getcwd(h->cwd, sizeof(h->cwd)))
        return err_errno(&h->err, errno, "working directory");
    for (int fd = 0; fd < 3; fd++) {
        struct stat st;
        const char *what = fstat(fd, &st) < 0    ? NULL
                           : S_ISDIR(st.st_mode) ? "a directory"
                           : S_ISSOCK(st.st_mode) && !here_is_pipe(fd) && !(h->bwrap && h->bwrap->with_network)
                               ? "a socket of the machine's"
                               : NULL;
        if (what)
            return err_set(&h->err, ERR_INVALID_ARGUMENT, "descriptor %d is %s, and a way around the boundary", fd,
                           what);
    }
    return 0;
}

/* ---- what the command sees of its environment ---- */

static void here_set(struct here *h, const char *name, const char *value)
{
    (void)json_object_set_new(h->environment, name, value ? json_stringn_nocheck(value, strlen(value)) : json_null());
}

static char **here_environment(const struct here *h)
{
    extern char **environ;
    size_t n = 0, at = 0;
    while (environ[n])
        n++;
    char **all = mem_array(n + json_object_size(h->environment) + 1, sizeof(*all));
    for (size_t i = 0; i < n; i++) {
        AUTO_FREE char *own = mem_strndup(environ[i], strcspn(environ[i], "="));
        if (!json_object_get(h->environment, own))
            all[at++] = environ[i];
    }
    JSON_FOREACH_MEMBER (name, value, h->environment)
        if (json_is_string(value))
            all[at++] = mem_printf("%s=%s", name, json_string_value(value));
    return all;
}

static void here_usual(struct here *h)
{
    static const char *const proxies[] = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY",
                                          "http_proxy", "https_proxy", "all_proxy", "ftp_proxy"};
    const struct settings_list *safe = &h->settings->safe_directories;
    char name[48], count[24];
    here_set(h, "TMPDIR", "/dev/shm");
    here_set(h, "SANDBOX_RUNTIME", "1");
    for (size_t i = 0; i < ARRAY_SIZE(proxies); i++)
        here_set(h, proxies[i], NULL); /* everything is captured; no proxy of the machine can be reached */
    for (size_t i = 0; i < safe->n; i++) {
        (void)snprintf(name, sizeof(name), "GIT_CONFIG_KEY_%zu", i);
        here_set(h, name, "safe.directory");
        (void)snprintf(name, sizeof(name), "GIT_CONFIG_VALUE_%zu", i);
        here_set(h, name, safe->items[i]);
    }
    (void)snprintf(count, sizeof(count), "%zu", safe->n);
    if (safe->n)
        here_set(h, "GIT_CONFIG_COUNT", count);
}

/* ---- secrets ---- */

/* As long as the real one, so that what looks at lengths is content. */
static char *here_sentinel(size_t n)
{
    enum { LEAST = 29, MOST = 512 };
    n = MIN(MAX(n, (size_t)LEAST), (size_t)MOST);
    char random[MOST + 1];
    id_token(random, n - strlen("fake_value_"));
    return mem_printf("fake_value_%s", random);
}

/* Before the box is made: it gets the stand-ins with its plan and its environment. */
static int here_mask(struct here *h, const struct settings_secret *secret)
{
    AUTO_BUF struct buf text = BUF_INIT(SETTINGS_MAX);
    AUTO_FREE char *path = secret->path ? plan_resolve(secret->path, h->cwd, h->home) : NULL;
    const char *value = secret->name ? getenv(secret->name) : NULL;
    struct stat st;
    if (path) {
        int r = stat(path, &st) == 0 && !S_ISREG(st.st_mode) ? -EINVAL /* of a FIFO nobody would see the end */
                                                             : fd_read_file(AT_FDCWD, path, &text);
        if (r < 0)
            return err_errno(&h->err, r, "credentials: %s", path);
        while (buf_len(&text) && strchr("\r\n", buf_data(&text)[buf_len(&text) - 1]))
            text.end--;
        value = buf_take(&text);
    }
    if (!value || !value[0])
        return 0; /* there is nothing to mask */
    struct here_masked m = {secret, path ? value : mem_strdup(value), here_sentinel(strlen(value))};
    h->masked = mem_realloc(h->masked, (h->n_masked + 1) * sizeof(m));
    h->masked[h->n_masked++] = m;
    if (path)
        plan_add(&h->plan, path, PLAN_CONTENT, m.sentinel);
    else
        here_set(h, secret->name, m.sentinel);
    plan_sort(&h->plan);
    return 0;
}

static int here_secrets(struct here *h)
{
    const struct settings *s = h->settings;
    for (size_t i = 0; i < s->n_secrets; i++) {
        if (s->secrets[i].is_mask && here_mask(h, &s->secrets[i]) < 0)
            return -1;
        if (s->secrets[i].name && !s->secrets[i].is_mask)
            here_set(h, s->secrets[i].name, NULL);
    }
    if (h->n_masked) /* the box's CA, for those who don't read the system's bundle */
        here_set(h, "NODE_EXTRA_CA_CERTS", BOX_OWN "ca.pem");
    return 0;
}

static int here_tell_secrets(struct here *h)
{
    for (size_t i = 0; i < h->n_masked; i++) {
        const struct here_masked *m = &h->masked[i];
        if (egress_child_secret(&h->egress, m->value, m->sentinel, m->secret->hosts, &h->err) < 0)
            return err_prefix(&h->err, "credentials: %s", m->secret->name ? m->secret->name : m->secret->path);
    }
    return 0;
}

/* ---- violations ---- */

static bool here_is_muted(const struct here *h, const char *line)
{
    JSON_FOREACH_MEMBER (command, texts, h->settings->muted) {
        if (strcmp(command, "*") != 0 && !strstr(h->command_text, command))
            continue;
        JSON_FOREACH (text, texts)
            if (strstr(line, json_string_value(text)))
                return true;
    }
    return false;
}

/* The command chooses the names. */
static void here_note(struct here *h, const char *host)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-_";
    if (host && host[strspn(host, plain)] == '\0' && json_object_size(h->refused) <= REFUSED_MAX)
        (void)json_object_set_new(h->refused, host, json_true());
}

static void here_told(void *ctx, const json_t *message)
{
    struct here *h = ctx;
    const char *op = json_string_value(json_object_get(message, "op"));
    bool is_misuse = op && strcmp(op, "misuse") == 0;
    if ((h->violations < 0 && !h->refused) || !op || (strcmp(op, "denied") != 0 && !is_misuse))
        return;
    json_t *line = json_copy((json_t *)message);
    const char *name = json_string_value(json_object_get(message, "name"));
    json_t *reason = name ? settings_reason(h->settings, name) : NULL;
    (void)json_object_del(line, "op");
    (void)json_object_del(line, "id");
    (void)json_object_set_new(line, "type", json_string(is_misuse ? "credential" : "network"));
    if (reason)
        (void)json_object_set(line, "explanation", reason);
    char *text = json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(line);
    const bool is_muted = !text || here_is_muted(h, text);
    if (!is_muted && h->violations >= 0 && buf_len(&h->told) + strlen(text) < TOLD_MAX)
        buf_printf(&h->told, "%s\n", text);
    if (!is_muted && h->refused && !is_misuse)
        here_note(h, name ? name : json_string_value(json_object_get(message, "address")));
    mem_free(text);
}

/* The command has seen but "no address", or a connection that was closed. */
static void here_say_refused(const struct here *h)
{
    const char *host;
    json_t *value;
    size_t n = 0;
    if (json_object_size(h->refused) == 0)
        return;
    (void)fprintf(stderr, "cove here: the network policy refused");
    json_object_foreach(h->refused, host, value) if (n++ < REFUSED_MAX)(void)
        fprintf(stderr, "%s %s", n > 1 ? "," : "", host);
    (void)fprintf(stderr, "%s; --allow HOST allows one\n", n > REFUSED_MAX ? " and others" : "");
}

/*
 * Who reads them may be slow, or do it at the end, and the command decides how many there are. So no more is written
 * than there is room for, and nothing read of cove-egress, which then drops some, while much waits.
 */
static void here_poll_told(const struct here *h, struct pollfd *ret_from, struct pollfd *ret_to)
{
    *ret_from = (struct pollfd){buf_len(&h->told) < TOLD_HIGH ? h->egress.link : -1, POLLIN, 0};
    *ret_to = (struct pollfd){buf_len(&h->told) ? h->violations : -1, POLLOUT, 0};
}

static void here_tell(struct here *h, const struct pollfd *from, const struct pollfd *to)
{
    if (to->revents) {
        ssize_t n = write(h->violations, buf_data(&h->told), MIN(buf_len(&h->told), (size_t)PIPE_BUF));
        if (n > 0)
            buf_consume(&h->told, (size_t)n);
        else if (errno != EAGAIN)
            h->violations = fd_close(h->violations), buf_clear(&h->told);
    }
    if (from->revents) {
        json_t *message = egress_child_read(&h->egress);
        if (message)
            here_told(h, message);
        else
            h->egress.link = fd_close(h->egress.link); /* nothing goes out any more */
        json_decref(message);
    }
}

/* ---- the start ---- */

static int here_way_out(struct here *h, int *fds, struct box_message *go)
{
    AUTO_FREE char *program = mem_printf("%s/cove-egress", h->program_dir);
    AUTO_BUF struct buf ca = BUF_INIT(BOX_TEXT_MAX - 1);
    const struct settings *s = h->settings;
    if (egress_child_start(&h->egress, program, s->trust, fds, &h->err) < 0)
        return -1;
    if (here_tell_secrets(h) < 0)
        return -1;
    if (egress_child_policy(&h->egress, s->rules, &ca, here_told, h, &h->err) < 0)
        return -1;
    (void)snprintf(go->text, sizeof(go->text), "%.*s", STR_ARG(buf_str(&ca)));
    return 0;
}

static int here_from_box(struct here *h, struct box_message *m, int *fds)
{
    size_t n_fds = 0;
    ssize_t n = fd_recv(h->link, m, sizeof(*m), fds, BOX_FDS, &n_fds);
    if (n < (ssize_t)offsetof(struct box_message, text))
        return err_set(&h->err, ERR_INTERNAL, "the box ended before the command did");
    m->text[sizeof(m->text) - 1] = '\0';
    if (m->word == BOX_FAILED)
        return err_errno(&h->err, m->number, "can't make the boundary: %.160s", m->text);
    return (int)n_fds;
}

static int here_start(struct here *h, char **argv, const sigset_t *mask, bool with_network)
{
    static struct box_message m, go = {.word = BOX_GO};
    int pair[2], fds[BOX_FDS] = {-1, -1, -1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(&h->err, errno, "make a socket");
    h->link = pair[0];
    const char *file = argv[0];
    if (h->bwrap && h->bwrap->argv0)
        argv[0] = (char *)(uintptr_t)h->bwrap->argv0;
    struct box_spec spec = {&h->plan,
                            h->bwrap,
                            h->cwd,
                            file,
                            argv,
                            here_environment(h),
                            with_network,
                            h->bwrap ? h->bwrap->has_unix_sockets : h->settings->all_unix_sockets,
                            h->settings->weaker_nested,
                            pair[1],
                            pair[0]};
    h->box = box_start(&spec, mask);
    (void)fd_close(pair[1]);
    if (h->box < 0)
        return err_errno(&h->err, (int)h->box,
                         "can't make a user namespace (sysctl user.max_user_namespaces, "
                         "kernel.unprivileged_userns_clone, or AppArmor's userns)");
    int n = here_from_box(h, &m, fds);
    if (n < 0 || (n == BOX_FDS && here_way_out(h, fds, &go) < 0))
        return -1;
    if (send(h->link, &go, offsetof(struct box_message, text) + strlen(go.text) + 1, MSG_NOSIGNAL) < 0)
        return err_errno(&h->err, errno, "talk to the box");
    return 0;
}

/* ---- while it runs ---- */

static void here_end_box(const struct here *h, int signum)
{
    (void)kill(h->box, signum);
}

static void here_control(struct here *h)
{
    char room[4096];
    ssize_t n = read(h->control, room, sizeof(room));
    if (n <= 0 || (buf_append(&h->line, room, (size_t)n) < 0)) {
        h->control = fd_close(h->control);
        if (!h->has_update) { /* nobody says any more what is allowed */
            here_end_box(h, SIGTERM);
            (void)alarm(TERM_MS / 1000);
        }
        return;
    }
    const char *end;
    while (buf_len(&h->line) && (end = memchr(buf_data(&h->line), '\n', buf_len(&h->line)))) {
        AUTO(settings_free) struct settings *s = NULL;
        AUTO_BUF struct buf ca = BUF_INIT(BOX_TEXT_MAX);
        size_t size = (size_t)(end - buf_data(&h->line));
        if (settings_parse(buf_data(&h->line), size, &s, &h->err) < 0 ||
            egress_child_policy(&h->egress, s->rules, &ca, here_told, h, &h->err) < 0)
            (void)fprintf(stderr, "cove here: --control-fd: %s\n", h->err.msg);
        else
            h->has_update = true;
        buf_consume(&h->line, size + 1);
    }
}

static void here_signal(const struct here *h)
{
    struct signalfd_siginfo info;
    if (read(h->signals, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo == SIGALRM && info.ssi_code > 0)
        here_end_box(h, SIGKILL);
    else if (info.ssi_signo != SIGCHLD && info.ssi_code <= 0)
        here_end_box(h, (int)info.ssi_signo);
}

static int here_wait(struct here *h, int *ret_status)
{
    struct pollfd p[5] = {{.fd = h->link, .events = POLLIN}, {.fd = h->signals, .events = POLLIN}};
    static struct box_message m;
    for (;;) {
        here_poll_told(h, &p[2], &p[3]);
        p[4] = (struct pollfd){h->control, POLLIN, 0};
        if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
            return err_errno(&h->err, errno, "wait");
        if (p[1].revents)
            here_signal(h);
        here_tell(h, &p[2], &p[3]);
        if (p[4].revents)
            here_control(h);
        if (p[0].revents) {
            int none[BOX_FDS], status;
            if (here_from_box(h, &m, none) < 0) {
                bool is_killed = waitpid(h->box, &status, 0) == h->box && WIFSIGNALED(status);
                h->box = -1;
                *ret_status = status;
                return is_killed ? 0 : -1;
            }
            *ret_status = m.number;
            return 0;
        }
    }
}

static void here_drain(struct here *h)
{
    const usec_t end = clock_add_ms(clock_mono(), TOLD_LAST_MS);
    struct pollfd p[2];
    here_poll_told(h, &p[0], &p[1]);
    while ((h->violations >= 0 || h->refused) && clock_mono() < end &&
           poll(p, ARRAY_SIZE(p),
                buf_len(&h->told)    ? TOLD_LAST_MS
                : h->violations >= 0 ? TOLD_QUIET_MS
                                     : 0) > 0) {
        here_tell(h, &p[0], &p[1]);
        here_poll_told(h, &p[0], &p[1]);
    }
}

static int here_end(struct here *h, int status)
{
    if (h->box > 0) {
        (void)kill(h->box, SIGKILL);
        (void)waitpid(h->box, NULL, 0);
    }
    here_drain(h);
    here_say_refused(h);
    egress_child_stop(&h->egress);
    plan_fini(&h->plan);
    if (h->is_foreground)
        (void)tcsetpgrp(STDIN_FILENO, getpgrp());
    if (status < 0)
        return here_fail(h);
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    if (h->bwrap)
        return 128 + WTERMSIG(status);
    /* The same death, as shells and those who wait see it. */
    const struct rlimit none = {0, 0};
    sigset_t all;
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(WTERMSIG(status), SIG_DFL);
    (void)sigemptyset(&all);
    (void)raise(WTERMSIG(status));
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    return 128 + WTERMSIG(status);
}

/* 0: *ret_command is to be run; else all was said: *ret_status. */
static int here_read(struct here *h, int argc, char **argv, char ***ret_command, int *ret_status)
{
    static char *shell[] = {"bash", "-c", NULL, NULL};
    static struct bwrap bwrap;
    const struct str name = path_base(str_of(argc ? argv[0] : ""));
    if (str_eqc(name, "bwrap") || str_eqc(name, "cove-bwrap")) {
        h->bwrap = &bwrap;
        int r = bwrap_parse(argc, argv, &bwrap, &h->err);
        *ret_status = r < 0 ? here_fail(h) : 0;
        *ret_command = bwrap.command;
        return r;
    }
    int r = here_options(h, argc, argv);
    if (r)
        *ret_status = r == HERE_SAID ? 0 : r == HERE_EXPLAIN ? here_explain(h, argv) : (here_fail(h), STATUS_USAGE);
    shell[2] = (char *)(uintptr_t)h->string;
    *ret_command = h->string ? shell : argv + optind;
    return r;
}

/* What is read of this machine for the command. */
static int here_prepare(struct here *h)
{
    if (here_surroundings(h) < 0)
        return -1;
    if (h->bwrap) {
        if (h->bwrap->dies_with_parent && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
            return err_errno(&h->err, errno, "--die-with-parent");
        return settings_parse(NULL, 0, &h->settings, &h->err);
    }
    return here_settings(h);
}

int main(int argc, char **argv)
{
    static struct here h = {
        .violations = -1, .control = -1, .link = -1, .box = -1, .egress = {-1, -1, -1, -1, "", 0, NULL}};
    sigset_t all, before;
    int status = -1;
    if (fd_standard(O_RDWR) < 0)
        return STATUS_COVE;
    json_set_alloc_funcs(mem_alloc, mem_free_wiped);
    if (here_find_programs(&h) < 0)
        return here_fail(&h);
    char **command;
    if (here_read(&h, argc, argv, &command, &status))
        return status;
    buf_init(&h.line, LINE_MAX_BYTES);
    buf_init(&h.told, TOLD_MAX);
    h.environment = json_object();
    if (here_prepare(&h) < 0)
        return here_fail(&h);
    assert(h.settings);
    bool with_network = h.settings->wants_network || h.control >= 0;
    h.command_text = mem_strdup(h.string ? h.string : command[0]);
    h.is_foreground = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
    if (!h.bwrap)
        here_usual(&h);
    if (!h.bwrap && h.violations < 0 && isatty(STDERR_FILENO))
        h.refused = json_object();
    (void)sigfillset(&all);
    for (int s = SIGTSTP; s <= SIGTTOU; s++)
        (void)sigdelset(&all, s); /* it stops when the command does */
    (void)sigdelset(&all, SIGSEGV);
    (void)sigdelset(&all, SIGABRT);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    h.signals = signalfd(-1, &all, SFD_CLOEXEC);
    if ((h.bwrap || plan_make(h.settings, h.cwd, h.home, &h.plan, &h.err) == 0) && here_secrets(&h) == 0 &&
        here_start(&h, command, &before, with_network) == 0 && here_wait(&h, &status) < 0)
        status = -1;
    return here_end(&h, status);
}
