/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/test_rig.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000 };

#define AGENT_DIR "COVE_TEST_AGENT_DIR"

/*
 * The agent runs in a process of its own that has nothing of the test's memory: this program, executed again. Leaks are
 * found when it ends.
 */
__attribute__((constructor)) static void run_agent(void)
{
    static struct agent agent;
    static const char *const environment[] = {"LANG=C.UTF-8", "SECRET_OF_THE_AGENT=1", NULL};
    const char *dir = getenv(AGENT_DIR);
    if (!dir)
        return;
    AUTO_FREE char *passwd = mem_printf("%s/passwd", dir), *group = mem_printf("%s/group", dir);
    struct agent_config config = AGENT_CONFIG_DEFAULT;
    config.users = (struct user_files){passwd, group};
    config.environment = environment;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)umask(022);
    int e = agent_init(&agent, &config, 3);
    if (e == 0)
        e = agent_run(&agent);
    agent_fini(&agent);
    mem_free(TAKE_PTR(passwd));
    mem_free(TAKE_PTR(group));
    if (access("/proc/self", F_OK) < 0) /* confined: the leak checker could not look */
        _exit(e < 0 ? 3 : 0);
    exit(e < 0 ? 3 : 0);
}

/* The worst that a starter can leave behind: all signals ignored and blocked. None of it may reach the agent's
 * children. */
static void spoil_signals(void)
{
    uint64_t all = ~UINT64_C(0), ignore[4] = {(uintptr_t)SIG_IGN};
    for (int i = 1; i <= 64; i++)
        (void)syscall(SYS_rt_sigaction, i, ignore, NULL, sizeof(all));
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof(all));
}

static void exec_agent(const char *dir, int control)
{
    spoil_signals();
    char *argv[] = {(char *)"agent", NULL};
    /* Memory is measured: what the sanitizer keeps back of what was freed must not count. */
    if (setenv(AGENT_DIR, dir, 1) == 0 &&
        setenv("ASAN_OPTIONS", "quarantine_size_mb=1:thread_local_quarantine_size_kb=64", 1) == 0 &&
        dup2(control, 3) == 3 && fd_cloexec(3, false) == 0)
        (void)execv("/proc/self/exe", argv);
    _exit(2);
}

struct stream_rules {
    bool replied, ended;
    uint64_t credit;
};

static struct stream_rules *rules_of(struct rig *r, uint32_t stream)
{
    struct stream_rules *rules = map_get_u64(&r->rules, stream);
    if (!rules) {
        rules = mem_new(struct stream_rules);
        rules->credit = WIRE_WINDOW;
        (void)map_put_u64(&r->rules, stream, rules);
    }
    return rules;
}

void rig_start(struct rig *r)
{
    rig_start_as(r, RIG_ORDERS);
}

/* ends[1] is the agent's. */
static void make_control(struct rig *r, int ends[static 2])
{
    struct termios raw;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (r->way == RIG_ORDERS) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    } else if (r->way == RIG_LISTENS) {
        (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/control", r->dir);
        ends[0] = -1;
        ends[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(ends[1], (struct sockaddr *)&a, sizeof(a)), 0);
        assert_int_equal(listen(ends[1], 4), 0);
    } else {
        assert_int_equal(openpty(&ends[0], &ends[1], NULL, NULL, NULL), 0);
        assert_int_equal(fd_cloexec(ends[0], true), 0); /* else the agent would hold the line itself */
        assert_int_equal(tcgetattr(ends[1], &raw), 0);
        cfmakeraw(&raw);
        assert_int_equal(tcsetattr(ends[1], TCSANOW, &raw), 0);
    }
}

/*
 * In memory, if there is enough and its files can do what a disk's can (attributes: Linux 6.6): ext4 is slow to give
 * out an inode that was freed a moment ago.
 */
static void make_dir(struct rig *r)
{
    struct statvfs fs;
    (void)snprintf(r->dir, sizeof(r->dir), "/dev/shm/cove-agent-test-XXXXXX");
    if (statvfs("/dev/shm", &fs) == 0 && !(fs.f_flag & ST_NOEXEC) && fs.f_bavail * fs.f_frsize >= 512 << 20 &&
        mkdtemp(r->dir)) {
        if (setxattr(r->dir, "user.probe", "", 0, 0) == 0 && removexattr(r->dir, "user.probe") == 0)
            return;
        (void)rmdir(r->dir);
    }
    (void)snprintf(r->dir, sizeof(r->dir), "/tmp/cove-agent-test-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
}

void rig_start_as(struct rig *r, enum rig_way way)
{
    int ends[2];
    *r = (struct rig){.way = way, .session = -1, .next_stream = 1, .in = BUF_INIT(4 * 1024 * 1024)};
    list_init(&r->arrived);
    make_dir(r);
    assert_int_equal(chmod(r->dir, 0755), 0);
    AUTO_FREE char *home = mem_printf("%s/home", r->dir);
    assert_int_equal(mkdir(home, 0755), 0);
    assert_int_equal(chown(home, 1000, 1000), 0);
    AUTO_FREE char *passwd = mem_printf(
        "root:x:0:0:root:/root:/bin/sh\n# no line\nuser:x:1000:1000:,,,:%s:/bin/sh\ntester:x:1001:1001::/nonexistent:/bin/sh\n",
        home);
    rig_write(rig_path(r, "passwd"), passwd);
    rig_write(rig_path(r, "group"), "root:x:0:\nuser:x:1000:\nextra:x:2000:other,user\nnot:x:2001:users\n");
    make_control(r, ends);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, there would be no status to wait for */
    r->agent = fork();
    assert_true(r->agent >= 0);
    if (r->agent == 0)
        exec_agent(r->dir, ends[1]);
    (void)close(ends[1]);
    r->control = ends[0];
    rig_connect(r);
}

void rig_connect(struct rig *r)
{
    int ends[2];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    rig_disconnect(r);
    if (r->way == RIG_ORDERS) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        const struct control_session order = {
            .what = CONTROL_SESSION, .id = "i0123456789abcdefghij", .template_id = "base"};
        assert_int_equal(fd_send(r->control, &order, sizeof(order), &ends[1], 1), 0);
        (void)close(ends[1]);
        r->session = ends[0];
    } else if (r->way == RIG_LISTENS) {
        (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/control", r->dir);
        r->session = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(r->session, (struct sockaddr *)&a, sizeof(a)), 0);
    } else {
        r->session = r->control;
        r->control = -1;
    }
    struct buf *hello = rig_request(0);
    buf_clear(hello);
    wire_put_str(hello, STR("user.rig."));
    wire_put_u32(hello, 2);
    for (int i = 0; i < 2; i++) {
        wire_put_str(hello, i ? STR("ALIAS") : STR("A"));
        wire_put_str(hello, i ? STR("i0123456789abcdefghij") : STR("0"));
    }
    rig_send(r, WIRE_HELLO, 0, 0, buf_data(hello), buf_len(hello));
    struct frame *f = rig_expect(r, 0, WIRE_HELLO);
    struct wire_reader reader = wire_reader_of(str_n(f->payload, f->n));
    assert_int_equal(wire_get_u32(&reader), WIRE_VERSION);
    assert_true(wire_done(&reader));
    assert_int_equal(f->stream, 0);
    frame_free(f);
}

void rig_disconnect(struct rig *r)
{
    r->session = fd_close(r->session);
    buf_clear(&r->in);
    LIST_FOREACH (struct frame, f, &r->arrived, node)
        frame_free(f);
    void *rules;
    for (size_t it = 0; (rules = map_next(&r->rules, &it));)
        mem_free(rules);
    map_fini(&r->rules);
}

static int remove_one(const char *path, const struct stat *st UNUSED, int type UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

void rig_stop(struct rig *r)
{
    int status = 0;
    rig_disconnect(r);
    if (r->way == RIG_LISTENS) /* nothing that the host closes ends it */
        (void)kill(r->agent, SIGKILL);
    (void)fd_close(r->control);
    for (int i = 0; i < PATIENCE_MS && waitpid(r->agent, &status, WNOHANG) == 0; i++)
        (void)usleep(1000);
    assert_int_equal(status, r->way == RIG_LISTENS ? SIGKILL : 0);
    assert_true(waitpid(r->agent, &status, WNOHANG) < 0);
    buf_fini(&r->in);
    (void)nftw(r->dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

char *rig_path(struct rig *r, const char *fmt, ...)
{
    static char paths[16][4200];
    static int next;
    va_list ap;
    char *p = paths[next++ % 16];
    int n = snprintf(p, sizeof(paths[0]), "%s/", r->dir);
    va_start(ap, fmt);
    (void)vsnprintf(p + n, sizeof(paths[0]) - (size_t)n, fmt, ap);
    va_end(ap);
    return p;
}

const char *rig_read(const char *path)
{
    static char text[65536];
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    assert_true(n >= 0);
    text[n] = 0;
    return text;
}

void rig_write(const char *path, const char *content)
{
    assert_int_equal(fd_write_file(AT_FDCWD, path, str_of(content), 0644), 0);
}

void rig_send_raw(struct rig *r, const void *p, size_t n)
{
    int sent = fd_write_all(r->session, p, n);
    /* It may hang up as soon as it has seen enough of what breaks the rules. */
    assert_true(sent == 0 || sent == -EPIPE || sent == -ECONNRESET);
}

void rig_send(struct rig *r, uint8_t type, uint8_t flags, uint32_t stream, const void *p, size_t n)
{
    uint8_t header[WIRE_HEADER_SIZE];
    wire_header_put(&(struct wire_frame){.size = (uint32_t)n, .stream = stream, .type = type, .flags = flags}, header);
    rig_send_raw(r, header, sizeof(header));
    rig_send_raw(r, p, n);
}

void rig_credit(struct rig *r, uint32_t stream, uint32_t bytes, bool delivered)
{
    AUTO_BUF struct buf b = BUF_INIT(4);
    wire_put_u32(&b, bytes);
    rules_of(r, stream)->credit += bytes;
    rig_send(r, WIRE_CREDIT, delivered ? WIRE_CREDIT_DELIVERED : 0, stream, buf_data(&b), 4);
}

struct buf *rig_request(uint8_t verb)
{
    static struct buf b;
    buf_fini(&b);
    buf_init(&b, WIRE_PAYLOAD_MAX);
    wire_put_u8(&b, verb);
    return &b;
}

uint32_t rig_open(struct rig *r, struct buf *request)
{
    assert_int_equal(buf_error(request), 0);
    uint32_t id = r->next_stream++;
    rig_send(r, WIRE_OPEN, 0, id, buf_data(request), buf_len(request));
    buf_fini(request);
    return id;
}

uint32_t rig_open_path(struct rig *r, uint8_t verb, const char *user, const char *path)
{
    struct buf *b = rig_request(verb);
    wire_put_str(b, str_of(user));
    wire_put_str(b, str_of(path));
    return rig_open(r, b);
}

uint32_t rig_exec(struct rig *r, const struct exec_options *o, ...)
{
    struct buf *b = rig_request(WIRE_EXEC);
    va_list ap;
    uint32_t n = 0;
    va_start(ap, o);
    wire_put_str(b, str_of(va_arg(ap, const char *)));
    size_t at = buf_len(b);
    wire_put_u32(b, 0);
    for (const char *arg; (arg = va_arg(ap, const char *)); n++)
        wire_put_str(b, str_of(arg));
    va_end(ap);
    memcpy(buf_data(b) + at, &n, sizeof(n));
    for (n = 0; o->env && o->env[2 * n]; n++)
        continue;
    wire_put_u32(b, n);
    for (uint32_t i = 0; i < 2 * n; i++)
        wire_put_str(b, str_of(o->env[i]));
    wire_put_str(b, str_of(o->user ? o->user : ""));
    wire_put_str(b, str_of(o->cwd ? o->cwd : ""));
    wire_put_str(b, str_of(o->tag ? o->tag : ""));
    wire_put_u8(b, (uint8_t)(o->flags | (o->tag ? WIRE_EXEC_TAG : 0)));
    wire_put_u16(b, o->cols);
    wire_put_u16(b, o->rows);
    return rig_open(r, b);
}

void frame_free(struct frame *f)
{
    list_remove(&f->node);
    MEM_FREE(f->payload, f);
}

/* wire/proto.h, theory of operation 2 to 5. */
static void check_rules(struct rig *r, const struct wire_frame *h)
{
    struct stream_rules *rules = rules_of(r, h->stream);
    assert_true(h->stream < r->next_stream);
    assert_int_equal(h->stream == 0, h->type == WIRE_HELLO);
    assert_false(rules->ended);
    if (h->type == WIRE_REPLY) {
        assert_false(rules->replied);
        rules->replied = true;
    } else if (h->type == WIRE_DATA) {
        assert_true(rules->replied);
        assert_true(h->size <= rules->credit);
        rules->credit -= h->size;
    } else if (h->type == WIRE_END) {
        rules->ended = true;
    }
}

/* Moves whole frames from the buffer to the list. */
static void parse(struct rig *r)
{
    struct wire_frame h;
    while (buf_len(&r->in) >= WIRE_HEADER_SIZE) {
        assert_int_equal(wire_header_get((const uint8_t *)buf_data(&r->in), &h), 0);
        if (buf_len(&r->in) < WIRE_HEADER_SIZE + h.size)
            return;
        check_rules(r, &h);
        struct frame *f = mem_new(struct frame);
        *f = (struct frame){.type = h.type, .flags = h.flags, .stream = h.stream, .n = h.size};
        char *payload = mem_alloc((size_t)h.size + 1); /* terminated, so that text in it can be looked at as such */
        memcpy(payload, buf_data(&r->in) + WIRE_HEADER_SIZE, h.size);
        payload[h.size] = 0;
        f->payload = payload;
        list_append(&r->arrived, &f->node);
        buf_consume(&r->in, WIRE_HEADER_SIZE + h.size);
    }
}

struct frame *rig_next(struct rig *r, uint32_t stream, int ms)
{
    usec_t until = clock_mono() + (usec_t)ms * USEC_PER_MS;
    for (;;) {
        LIST_FOREACH (struct frame, f, &r->arrived, node) {
            if (stream == 0 || f->stream == stream) {
                list_remove(&f->node);
                return f;
            }
        }
        usec_t now = clock_mono();
        struct pollfd p = {.fd = r->session, .events = POLLIN};
        if (now > until || poll(&p, 1, (int)((until - now) / USEC_PER_MS) + 1) == 0)
            return NULL;
        char *to = buf_reserve(&r->in, 512 * 1024);
        assert_non_null(to);
        ssize_t n = read(r->session, to, 512 * 1024);
        if (n <= 0)
            return NULL;
        buf_commit(&r->in, (size_t)n);
        parse(r);
    }
}

struct frame *rig_expect(struct rig *r, uint32_t stream, uint8_t type)
{
    struct frame *f = rig_next(r, stream, PATIENCE_MS);
    assert_non_null(f);
    if (f->type == WIRE_END && type != WIRE_END && f->n > 6)
        print_message("END: %.*s\n", (int)f->n - 6, f->payload + 6);
    assert_int_equal(f->type, type);
    return f;
}

bool rig_is_quiet(struct rig *r, uint32_t stream, int ms)
{
    struct frame *f = rig_next(r, stream, ms);
    if (f)
        frame_free(f);
    return !f;
}

void rig_expect_dropped(struct rig *r)
{
    char byte[4096];
    struct pollfd p = {.fd = r->session, .events = POLLIN};
    for (;;) {
        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        ssize_t n = read(r->session, byte, sizeof(byte));
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return;
        assert_true(n > 0);
    }
}

void rig_result(struct rig *r, uint32_t stream, bool ack, struct result *ret)
{
    static const char marks[4] = {'?', 'o', 'e', 'p'};
    *ret = (struct result){
        .head = BUF_INIT(1 << 20), .data = BUF_INIT(1 << 30), .marks = BUF_INIT(1 << 30), .tail = BUF_INIT(1 << 20)};
    for (;;) {
        struct frame *f = rig_next(r, stream, PATIENCE_MS);
        assert_non_null(f);
        struct wire_reader reader = wire_reader_of(str_n(f->payload, f->n));
        if (f->type == WIRE_REPLY) {
            ret->has_head = true;
            (void)buf_append(&ret->head, f->payload, f->n);
        } else if (f->type == WIRE_DATA) {
            assert_true(f->flags <= WIRE_PTY);
            (void)buf_append(&ret->data, f->payload, f->n);
            memset(buf_reserve(&ret->marks, f->n), marks[f->flags], f->n);
            buf_commit(&ret->marks, f->n);
            if (ack)
                rig_credit(r, stream, (uint32_t)f->n, true);
        } else if (f->type == WIRE_END) {
            ret->code = (uint16_t)(wire_get_u16(&reader) & 0xff);
            struct str message = wire_get_str(&reader);
            assert_false(reader.bad);
            ret->message = mem_strndup(message.p ? message.p : "", message.n);
            (void)buf_append(&ret->tail, reader.p, reader.n);
            frame_free(f);
            return;
        } else {
            assert_true(f->type == WIRE_EOF || f->type == WIRE_CREDIT);
        }
        frame_free(f);
    }
}

void result_fini(struct result *x)
{
    buf_fini(&x->head);
    buf_fini(&x->data);
    buf_fini(&x->marks);
    buf_fini(&x->tail);
    mem_free(TAKE_PTR(x->message));
}

void rig_expect_end(struct rig *r, uint32_t stream, uint16_t code, const char *message)
{
    struct result x;
    rig_result(r, stream, true, &x);
    assert_string_equal(x.message, message);
    assert_int_equal(x.code, code);
    result_fini(&x);
}

struct exit_info result_exit(const struct result *x)
{
    struct wire_reader head = wire_reader_of(buf_str(&x->head)), tail = wire_reader_of(buf_str(&x->tail));
    if (x->code)
        print_message("END: %s\n", x->message);
    assert_int_equal(x->code, ERR_OK);
    struct exit_info e = {.pid = wire_get_u32(&head)};
    e.offset = wire_get_u64(&head);
    e.how = wire_get_u8(&tail);
    e.code = wire_get_u32(&tail);
    e.total = wire_get_u64(&tail);
    assert_true(wire_done(&head) && wire_done(&tail));
    return e;
}

uint32_t rig_expect_started(struct rig *r, uint32_t stream)
{
    struct frame *f = rig_expect(r, stream, WIRE_REPLY);
    struct wire_reader reader = wire_reader_of(str_n(f->payload, f->n));
    uint32_t pid = wire_get_u32(&reader);
    (void)wire_get_u64(&reader);
    assert_true(wire_done(&reader));
    frame_free(f);
    return pid;
}

struct entry entry_get(struct wire_reader *r)
{
    struct entry e = {.name = wire_get_str(r)};
    e.path = wire_get_str(r);
    e.type = wire_get_u8(r);
    e.mode = wire_get_u32(r);
    e.link_mode = wire_get_u32(r);
    e.size = wire_get_u64(r);
    e.uid = wire_get_u32(r);
    e.gid = wire_get_u32(r);
    e.owner = wire_get_str(r);
    e.group = wire_get_str(r);
    e.mtime = wire_get_u64(r);
    e.is_link = wire_get_u8(r);
    e.target = wire_get_str(r);
    e.n_metadata = wire_get_count(r, 8);
    for (uint32_t i = 0; i < e.n_metadata; i++) {
        struct str key = wire_get_str(r), value = wire_get_str(r);
        if (i < ARRAY_SIZE(e.metadata)) {
            e.metadata[i][0] = key;
            e.metadata[i][1] = value;
        }
    }
    assert_false(r->bad);
    return e;
}

struct entry rig_stat(struct rig *r, const char *path, struct result *keep)
{
    rig_result(r, rig_open_path(r, WIRE_STAT, "root", path), true, keep);
    assert_string_equal(keep->message, "");
    assert_int_equal(keep->code, ERR_OK);
    struct wire_reader reader = wire_reader_of(buf_str(&keep->tail));
    struct entry e = entry_get(&reader);
    assert_true(wire_done(&reader));
    return e;
}

long rig_agent_rss(const struct rig *r)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", r->agent);
    const char *line = strstr(rig_read(path), "VmRSS:");
    assert_non_null(line);
    return strtol(line + 6, NULL, 10);
}
