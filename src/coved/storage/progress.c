/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/progress.h"
#include "base/fd.h"
#include "base/log.h"

#define CLEAR "\r\033[K"

/* Beginnings of what mmdebstrap 1.3 says about itself. */
static const struct {
    const char *message, *phase;
} phases[] = {
    {"running apt-get update", "reading package lists"},
    {"downloading packages", "downloading packages"},
    {"extracting archives", "extracting packages"},
    {"installing essential packages", "installing essential packages"},
    {"installing remaining packages", "installing packages"},
    {"running --customize-hook", "setting up"},
    {"cleaning", "setting up"},
    {"creating tarball", "unpacking"},
};

static void progress_put(struct progress *p, struct str text)
{
    int ignored UNUSED = fd_write_all(p->fd, text.p, text.n); /* nobody looks: it goes on */
}

void progress_init(struct progress *p, int fd, bool is_terminal)
{
    *p = (struct progress){.fd = fd, .is_terminal = is_terminal, .since = clock_mono(), .phase = "starting"};
}

static void progress_say(struct progress *p, bool last)
{
    char text[160], unpacked[48] = "";
    if (p->bytes)
        (void)snprintf(unpacked, sizeof(unpacked), ", %llu MB unpacked", (unsigned long long)(p->bytes / 1000000));
    p->shown = clock_mono();
    int n = snprintf(text, sizeof(text), "%scove: building the base template: %3llu s, %s%s%s",
                     p->is_terminal ? CLEAR : "", (unsigned long long)((p->shown - p->since) / USEC_PER_SEC), p->phase,
                     unpacked, p->is_terminal && !last ? "" : "\n");
    progress_put(p, str_n(text, (size_t)n));
}

void progress_show(struct progress *p)
{
    if (clock_mono() - p->shown >= (p->is_terminal ? 1 : 5) * USEC_PER_SEC)
        progress_say(p, false);
}

void progress_bytes(struct progress *p, uint64_t more)
{
    p->bytes += more;
    progress_show(p);
}

static void enter_phase(struct progress *p, struct str message)
{
    for (size_t i = 0; i < ARRAY_SIZE(phases); i++)
        if (str_starts(message, str_of(phases[i].message)) && p->phase != phases[i].phase) {
            p->phase = phases[i].phase;
            progress_say(p, false);
        }
}

static void progress_draw(struct progress *p, struct str text, bool begins)
{
    if (begins && p->is_terminal)
        progress_put(p, STR(CLEAR));
    progress_put(p, text);
}

/* The oldest goes. */
static void progress_keep(struct progress *p, struct str text)
{
    size_t room = sizeof(p->kept) - p->kept_n;
    if (text.n > room) {
        p->kept_n -= text.n - room;
        memmove(p->kept, p->kept + text.n - room, p->kept_n);
    }
    memcpy(p->kept + p->kept_n, text.p, text.n);
    p->kept_n += text.n;
}

static void show_kept(struct progress *p)
{
    if (p->kept_n)
        progress_draw(p, str_n(p->kept, p->kept_n), true);
    p->kept_n = 0;
}

static void begin_line(struct progress *p, struct str line)
{
    if (str_starts(line, STR("I: "))) {
        p->kind = PROGRESS_INFO;
        enter_phase(p, str_sub(line, 3));
    } else if (str_starts(line, STR("W: ")) || str_starts(line, STR("E: "))) {
        p->kind = PROGRESS_SHOWN;
        if (line.p[0] == 'E')
            show_kept(p);
    } else {
        p->kind = PROGRESS_KEPT;
    }
}

static void take_line(struct progress *p, bool whole)
{
    struct str line = str_n(p->line, p->n), end = whole ? STR("\n") : STR("");
    bool begins = !p->is_rest;
    if (begins)
        begin_line(p, line);
    if (p->kind == PROGRESS_SHOWN) {
        progress_draw(p, line, begins);
        progress_put(p, end);
    } else if (p->kind == PROGRESS_KEPT) {
        log_debug("the builder says: %.*s", STR_ARG(line));
        progress_keep(p, line);
        progress_keep(p, end);
    }
    p->is_rest = !whole;
    p->n = 0;
}

void progress_messages(struct progress *p, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == '\n') {
            take_line(p, true);
            continue;
        }
        p->line[p->n++] = text.p[i];
        if (p->n == sizeof(p->line))
            take_line(p, false);
    }
}

void progress_end(struct progress *p, bool ok)
{
    if (p->n)
        take_line(p, true);
    if (!ok)
        show_kept(p);
    p->phase = ok ? "done" : "failed";
    progress_say(p, true);
}
