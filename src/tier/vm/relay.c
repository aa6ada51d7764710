/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/relay.h"
#include "base/clock.h"
#include "base/fd.h"
#include "tier/vm/body.h"
#include "tier/vm/channel.h"
#include "wire/control.h"
#include "wire/wake.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BOOT_USEC = 120 * 1000000, /* under emulation on a busy machine */
    WAKE_USEC = 30 * 1000000,
    SETTLE_USEC = 1500 * 1000, /* coved waits for 2 s, the control group included */
    FIRST_SETTLE_USEC = 20 * 1000000,
    ORDER_USEC = 1000 * 1000,
    GO_USEC = 20 * 1000000,
    LOAD_USEC = 60 * 1000000,
    SAVE_MS = 120 * 1000,
    BLOCK = 64 * 1024,
    CONSOLE_TEXT = 200,
};

enum relay_state {
    RELAY_RUNS,
    RELAY_SETTLES, /* its agent was told to */
    RELAY_HELD,    /* it stands still until coved says so */
    RELAY_WAITS,   /* it stands still until its first session */
};

struct vm_relay {
    const struct relay_spec *spec;
    struct vm_channel channel;
    struct vmm_monitor monitor;
    enum relay_state state;
    bool is_halted, is_due; /* is_due: the session has not begun */
    bool has_taken;         /* the monitor, what coved has for it */
    struct buf from_session, to_machine, to_session;
    int session; /* owned; -1: none */
    bool is_up;
    uint64_t nonce;
    usec_t up_by, wake_by, settle_by; /* monotonic; 0: nothing is waited for */
    struct control_session who;
    char console[CONSOLE_TEXT]; /* its last words */
    size_t n_console;
};

NORETURN static void relay_end(const struct vm_relay *r, const char *why)
{
    char message[TIER_MESSAGE_MAX] = {TIER_FAILED};
    const uint16_t number = EIO;
    memcpy(message + 1, &number, sizeof(number));
    int n = 3 + snprintf(message + 3, sizeof(message) - 3, "%s%s%.*s", why, r->n_console ? ": " : "", (int)r->n_console,
                         r->console);
    ssize_t ignored UNUSED =
        r->is_up ? 0 : send(r->spec->sock, message, MIN((size_t)n, sizeof(message) - 1), MSG_NOSIGNAL);
    _exit(1);
}

static void relay_close_session(struct vm_relay *r)
{
    r->session = fd_close(r->session);
    buf_clear(&r->from_session);
    buf_clear(&r->to_session);
}

static void relay_tell(struct vm_relay *r, enum wire_wake what, uint64_t nonce)
{
    const struct wake w = {.what = (uint8_t)what,
                           .nonce = nonce,
                           .name = str_of(r->spec->name),
                           .id = str_of(r->who.id),
                           .template_id = str_of(r->who.template_id),
                           .pids = r->spec->pids};
    if (wake_put(&r->to_machine, &w) < 0)
        relay_end(r, "the machine doesn't read");
}

/* ---- standing still ---- */

static int relay_ask(struct vm_relay *r, enum vmm_order order, usec_t patience)
{
    char why[VMM_WHY_MAX];
    int n = vmm_qemu.ask(&r->monitor, order, clock_mono() + patience, why) == 0
                ? 0
                : snprintf(r->console, sizeof(r->console), "monitor: %.*s", VMM_WHY_MAX, why);
    r->n_console = n ? MIN((size_t)n, sizeof(r->console) - 1) : r->n_console;
    return n ? -EIO : 0;
}

static int relay_keep_devices(struct vm_relay *r)
{
    static char block[BLOCK];
    const struct relay_spec *spec = r->spec;
    struct stat st;
    struct vm_devices d = {.machine = spec->machine};
    memcpy(d.machine.version, r->monitor.version, sizeof(d.machine.version));
    if (fstat(spec->devices_fd, &st) < 0 || st.st_size == 0 || st.st_size > SAVED_DEVICES_MAX)
        return -EFBIG;
    while (d.bytes < (uint64_t)st.st_size) {
        ssize_t n = pread(spec->devices_fd, block, sizeof(block), (off_t)d.bytes);
        if (n <= 0 || pwrite(spec->state_fd, block, (size_t)n, (off_t)(VM_DEVICES_DATA + d.bytes)) != n)
            return -EIO;
        d.bytes += (uint64_t)n;
    }
    return pwrite(spec->state_fd, &d, sizeof(d), VM_DEVICES_AT) == sizeof(d) ? 0 : -EIO;
}

/* Its agent has settled. */
static int relay_hold(struct vm_relay *r)
{
    r->state = RELAY_HELD;
    r->is_halted = true; /* perhaps */
    int error = relay_ask(r, VMM_HALT, ORDER_USEC);
    if (error == 0 && (ftruncate(r->spec->devices_fd, 0) < 0 || lseek(r->spec->devices_to, 0, SEEK_SET) < 0))
        error = -errno;
    error = error ? error : relay_ask(r, VMM_SAVE, ORDER_USEC);
    return error ? error : relay_keep_devices(r);
}

static void relay_go(struct vm_relay *r)
{
    const bool was_told = r->state == RELAY_SETTLES || r->state == RELAY_HELD;
    r->state = RELAY_RUNS;
    r->settle_by = 0;
    if (was_told)
        relay_tell(r, WIRE_WAKE_ON, 0);
    if (r->has_taken && relay_ask(r, VMM_DROP, GO_USEC) < 0)
        relay_end(r, "the monitor keeps what it was given");
    r->has_taken = false;
    if (r->is_halted && relay_ask(r, VMM_RUN, GO_USEC) < 0)
        relay_end(r, "the machine doesn't go on");
    r->is_halted = false;
}

static void relay_begin(struct vm_relay *r)
{
    r->is_due = false;
    r->channel.drops = true;
    if (getrandom(&r->nonce, sizeof(r->nonce), 0) != sizeof(r->nonce))
        relay_end(r, "no random numbers");
    r->channel.awaits = r->nonce;
    r->wake_by = clock_mono() + WAKE_USEC;
    if (r->state == RELAY_WAITS && r->spec->has_programs)
        relay_tell(r, WIRE_WAKE_RESTORED, 0);
    relay_tell(r, WIRE_WAKE_SESSION, r->nonce);
    if (r->state == RELAY_WAITS)
        relay_go(r);
}

/* ---- coved ---- */

static uint32_t relay_asked(const struct vm_relay *r)
{
    uint32_t asked = 0;
    ssize_t n = pread(r->spec->state_fd, &asked, sizeof(asked), offsetof(struct vm_state, asked));
    return n == sizeof(asked) ? asked : 0;
}

static void relay_note(const struct vm_relay *r, uint32_t number, size_t at)
{
    if (pwrite(r->spec->state_fd, &number, sizeof(number), (off_t)at) != sizeof(number))
        relay_end(r, "can't note what is done");
}

static void relay_settle(struct vm_relay *r, enum wire_wake how, usec_t patience)
{
    r->state = RELAY_SETTLES;
    r->settle_by = clock_mono() + patience;
    relay_tell(r, how, relay_asked(r));
}

static void relay_order(struct vm_relay *r)
{
    struct control_session order = {.what = 0};
    int fd = -1;
    size_t n_fds = 0;
    ssize_t n = fd_recv(r->spec->sock, &order, sizeof(order), &fd, 1, &n_fds);
    if (n == 0 || n == -ECONNRESET)
        _exit(0);
    if (n == sizeof(order) && order.what == CONTROL_SESSION && n_fds == 1) {
        order.id[sizeof(order.id) - 1] = order.template_id[sizeof(order.template_id) - 1] = 0;
        r->who = order;
        relay_close_session(r);
        r->session = TAKE_FD(fd);
        r->is_due = r->channel.drops = true;
        r->wake_by = 0;
    } else if (n > 0 && order.what == VM_SETTLE) {
        relay_settle(r, WIRE_WAKE_SETTLE, SETTLE_USEC);
    } else if (n > 0 && order.what == VM_TAKE && n_fds == 1 && r->state == RELAY_HELD && !r->has_taken) {
        r->monitor.given = fd;
        r->has_taken = relay_ask(r, VMM_TAKE, GO_USEC) == 0;
    } else if (n > 0 && order.what == VM_GO) {
        relay_go(r);
    }
    (void)fd_close(fd);
}

/* ---- the machine ---- */

static void relay_up(struct vm_relay *r)
{
    const char up = TIER_RUNS;
    if (!r->is_up && send(r->spec->sock, &up, 1, MSG_NOSIGNAL) != 1)
        _exit(0);
    r->is_up = true;
    r->up_by = 0;
}

/* The machine as it is once its agent is there is what later ones begin as. It is a good one, whether that comes about
 * or not. */
static void relay_save_first(struct vm_relay *r, int held)
{
    char done = 0;
    struct pollfd p = {.fd = r->spec->saver, .events = POLLIN};
    if (held == 0 && send(r->spec->saver, "", 1, MSG_NOSIGNAL) == 1 && poll(&p, 1, SAVE_MS) == 1)
        (void)recv(r->spec->saver, &done, 1, 0);
    (void)shutdown(r->spec->saver, SHUT_RDWR);
    r->state = r->is_halted ? RELAY_WAITS : RELAY_RUNS;
    relay_up(r);
}

static void relay_on_woken(void *ctx, uint8_t what, uint64_t nonce)
{
    struct vm_relay *r = ctx;
    if (what == WIRE_WAKE_SESSION && nonce == r->nonce)
        r->wake_by = 0;
    const bool has_settled = what == WIRE_WAKE_SETTLE || what == WIRE_WAKE_REHEARSE;
    if (has_settled && r->state == RELAY_SETTLES && nonce == relay_asked(r)) {
        r->settle_by = 0;
        int held = relay_hold(r);
        if (!r->is_up)
            relay_save_first(r, held);
        else
            relay_note(r, (uint32_t)nonce,
                       held ? offsetof(struct vm_state, failed) : offsetof(struct vm_state, settled));
    }
}

static void relay_on_greeted(void *ctx)
{
    struct vm_relay *r = ctx;
    if (!r->is_up && r->spec->saver >= 0)
        relay_settle(r, WIRE_WAKE_REHEARSE, FIRST_SETTLE_USEC);
    else
        relay_up(r);
}

/* What it goes on from is there. */
static void relay_restored(struct vm_relay *r)
{
    if (relay_ask(r, VMM_AWAIT, LOAD_USEC) < 0)
        relay_end(r, "the machine can't go on");
    if (strcmp(r->monitor.version, r->spec->goes_on) != 0) {
        int n = snprintf(r->console, sizeof(r->console), "saved by version %s, this is %s", r->spec->goes_on,
                         r->monitor.version);
        r->n_console = MIN((size_t)n, sizeof(r->console) - 1);
        relay_end(r, "the machine can't go on");
    }
    r->state = RELAY_WAITS;
    r->is_halted = true;
    if (!r->spec->rehearses) {
        relay_up(r);
        return;
    }
    relay_settle(r, WIRE_WAKE_REHEARSE, FIRST_SETTLE_USEC);
    if (relay_ask(r, VMM_RUN, GO_USEC) < 0)
        relay_end(r, "the machine doesn't go on");
    r->is_halted = false;
}

static void relay_read_machine(struct vm_relay *r)
{
    static char block[BLOCK];
    ssize_t n = recv(r->spec->wire_fd, block, sizeof(block), MSG_DONTWAIT);
    if (n == 0)
        relay_end(r, "the machine ended");
    if (n > 0 && channel_feed(&r->channel, str_n(block, (size_t)n), &r->to_session) < 0)
        relay_end(r, "what the machine sends is no wire");
    if (r->session < 0)
        buf_clear(&r->to_session);
}

/* Text of the machine's: printable, the last line of it. */
static void relay_read_console(struct vm_relay *r)
{
    char block[512];
    ssize_t n = read(r->spec->console_fd, block, sizeof(block));
    for (ssize_t i = 0; i < n; i++) {
        bool is_line = block[i] == '\n' && i + 1 < n;
        r->n_console = is_line ? 0 : r->n_console;
        if (block[i] >= ' ' && block[i] < 0x7f && r->n_console < CONSOLE_TEXT)
            r->console[r->n_console++] = block[i];
    }
}

static void relay_write(struct vm_relay *r, int fd, struct buf *b)
{
    ssize_t n = send(fd, buf_data(b), buf_len(b), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        buf_consume(b, (size_t)n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR && fd == r->session)
        relay_close_session(r);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        relay_end(r, "the machine ended");
}

/* ---- the session ---- */

static void relay_read_session(struct vm_relay *r)
{
    char *to = buf_reserve(&r->from_session, BLOCK);
    ssize_t n = to ? recv(r->session, to, BLOCK, MSG_DONTWAIT) : -1;
    if (n > 0)
        buf_commit(&r->from_session, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        relay_close_session(r);
}

static void relay_pass(struct vm_relay *r)
{
    if (r->is_due && (r->state == RELAY_RUNS || r->state == RELAY_WAITS))
        relay_begin(r);
    if (r->channel.drops || r->state != RELAY_RUNS || buf_len(&r->to_machine) >= BLOCK)
        return;
    ssize_t n = channel_whole(&r->from_session, BLOCK);
    if (n < 0) {
        relay_close_session(r);
        return;
    }
    (void)buf_append(&r->to_machine, buf_data(&r->from_session), (size_t)n);
    buf_consume(&r->from_session, (size_t)n);
}

static int relay_wait_ms(const struct vm_relay *r, usec_t now)
{
    usec_t next = UINT64_MAX;
    const usec_t all[] = {r->up_by, r->wake_by, r->settle_by};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        next = all[i] ? MIN(next, all[i]) : next;
    return next == UINT64_MAX ? -1 : next <= now ? 0 : (int)((next - now) / USEC_PER_MS + 1);
}

static void relay_look_at_clock(struct vm_relay *r)
{
    usec_t now = clock_mono();
    if (r->up_by && now >= r->up_by)
        relay_end(r, "the agent in the machine did not start in time");
    if (r->wake_by && now >= r->wake_by) {
        r->wake_by = 0;
        relay_close_session(r);
    }
    if (r->settle_by && now >= r->settle_by) {
        r->settle_by = 0;
        if (!r->is_up)
            relay_end(r, "the agent in the machine does not settle");
        relay_note(r, relay_asked(r), offsetof(struct vm_state, failed));
    }
}

void relay_run(const struct relay_spec *spec)
{
    static struct vm_relay r;
    enum { SOCK, WIRE, CONSOLE, VMM, SESSION, ALL };
    r = (struct vm_relay){.spec = spec,
                          .session = -1,
                          .up_by = clock_mono() + BOOT_USEC,
                          .monitor = {.fd = spec->monitor_fd},
                          .from_session = BUF_INIT(CHANNEL_ROOM),
                          .to_machine = BUF_INIT(2 * CHANNEL_ROOM),
                          .to_session = BUF_INIT(4 * CHANNEL_ROOM),
                          .channel = {.drops = true, .woken = relay_on_woken, .greeted = relay_on_greeted, .ctx = &r}};
    if (spec->goes_on)
        relay_restored(&r);
    for (;;) {
        relay_pass(&r);
        bool takes = buf_len(&r.from_session) < CHANNEL_MAX, is_full = buf_len(&r.to_session) >= CHANNEL_ROOM;
        struct pollfd p[ALL] = {
            [SOCK] = {spec->sock, POLLIN, 0},
            [WIRE] = {spec->wire_fd,
                      (short)((is_full ? 0 : POLLIN) | (buf_len(&r.to_machine) && !r.is_halted ? POLLOUT : 0)), 0},
            [CONSOLE] = {spec->console_fd, POLLIN, 0},
            [VMM] = {spec->vmm_fd, POLLIN, 0},
            [SESSION] = {r.session, (short)((takes ? POLLIN : 0) | (buf_len(&r.to_session) ? POLLOUT : 0)), 0},
        };
        if (poll(p, ALL, relay_wait_ms(&r, clock_mono())) < 0 && errno != EINTR)
            relay_end(&r, "wait");
        if (p[CONSOLE].revents & POLLIN)
            relay_read_console(&r);
        if (p[VMM].revents)
            relay_end(&r, "the machine ended");
        if (p[WIRE].revents & POLLOUT)
            relay_write(&r, spec->wire_fd, &r.to_machine);
        if (p[WIRE].revents & (POLLIN | POLLHUP | POLLERR))
            relay_read_machine(&r);
        if (r.session >= 0 && (p[SESSION].revents & (POLLIN | POLLHUP | POLLERR)))
            relay_read_session(&r);
        if (r.session >= 0 && buf_len(&r.to_session))
            relay_write(&r, r.session, &r.to_session);
        if (p[SOCK].revents)
            relay_order(&r);
        relay_look_at_clock(&r);
    }
}
