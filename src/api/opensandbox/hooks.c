/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entrypoint of a sandbox, and its hooks: what runs before it, and what runs by a schedule. All of it are processes inside, so that it is frozen and kept through restarts as everything
 * there is, and what it writes is in the sandbox's log.
 *
 *  1. preStart and the entrypoint are one process: a shell that becomes the entrypoint when the hook ended well, and else ends with FAILED_STATUS. No hook: the entrypoint itself.
 *  2. A periodic hook is a shell that sleeps until its schedule, which was read and written out here. It does nothing before preStart has ended well, and does not overlap with itself.
 *  3. How the entrypoint ended stands in the sandbox's metadata (OPENSANDBOX_END), while we see it: after a restart of this worker the log alone tells.
 */
#include "api/opensandbox/hooks.h"

#include "base/clock.h"
#include "base/mem.h"
#include "sandbox/tenant.h"

#include <stdio.h>

enum {
    FAILED_STATUS = 125,
    DEFAULT_S = 60,
    PRE_MAX_S = 10800,
    PERIODIC_MAX_S = 300,
    PERIODIC_MAX = 32,
    NAME_LEN_MAX = 63
};

struct osb_hook {
    struct str name;
    const struct str *command;
    size_t n;
    int64_t timeout_s;
    struct schedule schedule;
};

struct osb_hooks {
    struct osb_hook pre; /* n 0: none */
    struct osb_hook *periodic;
    size_t n_periodic;
};

/* ---- schedules ---- */

int schedule_duration(struct str text, uint64_t *ret_s)
{
    static const struct {
        char unit;
        uint32_t seconds;
    } units[] = {{'h', 3600}, {'m', 60}, {'s', 1}};
    uint64_t all = 0, n = 0;
    bool has_digit = false;

    if (!text.n)
        return -EINVAL;
    for (size_t i = 0, u = 0; i < text.n; i++) {
        char c = text.p[i];

        if (c >= '0' && c <= '9') {
            n = n * 10 + (uint64_t)(c - '0');
            has_digit = true;
            if (n > UINT32_MAX)
                return -ERANGE;
            continue;
        }
        while (u < ARRAY_SIZE(units) && units[u].unit != c)
            u++;
        if (u == ARRAY_SIZE(units) || !has_digit)
            return -EINVAL;
        all += n * units[u++].seconds;
        n = 0;
        has_digit = false;
    }
    if (has_digit || !all || all > UINT32_MAX)
        return -EINVAL;
    *ret_s = all;
    return 0;
}

static bool schedule_number(struct str text, uint64_t min, uint64_t max, uint64_t *ret_n)
{
    return text.n && text.n <= 2 && str_to_u64(text, ret_n) == 0 && *ret_n >= min && *ret_n <= max;
}

/* "*", "5", "1-5", "0-30/10,45": the bits of those numbers. */
static int schedule_field(struct str text, unsigned min, unsigned max, uint64_t *ret_bits)
{
    struct str one;
    uint64_t bits = 0;

    for (bool more = text.n; more;) {
        ssize_t comma = str_find_char(text, ',');
        uint64_t from = min, to = max, step = 1;

        one = comma < 0 ? text : str_n(text.p, (size_t)comma);
        more = comma >= 0;
        text = more ? str_sub(text, (size_t)comma + 1) : STR("");
        ssize_t slash = str_find_char(one, '/');
        if (slash >= 0 && !schedule_number(str_sub(one, (size_t)slash + 1), 1, max, &step))
            return -EINVAL;
        one = slash < 0 ? one : str_n(one.p, (size_t)slash);
        ssize_t dash = str_find_char(one, '-');
        if (!str_eqc(one, "*") && !str_eqc(one, "?")) {
            if (!schedule_number(dash < 0 ? one : str_n(one.p, (size_t)dash), min, max, &from))
                return -EINVAL;
            to = dash < 0 && slash < 0 ? from : max;
            if (dash >= 0 && (!schedule_number(str_sub(one, (size_t)dash + 1), min, max, &to) || to < from))
                return -EINVAL;
        }
        for (uint64_t n = from; n <= to; n += step)
            bits |= 1ULL << n;
    }
    *ret_bits = bits;
    return bits ? 0 : -EINVAL;
}

int schedule_parse(struct str text, struct schedule *ret_schedule)
{
    static const struct {
        const char *name, *fields;
    } names[] = {{"@hourly", "0 * * * *"},  {"@daily", "0 0 * * *"},   {"@midnight", "0 0 * * *"},
                 {"@weekly", "0 0 * * 0"},  {"@monthly", "0 0 1 * *"}, {"@yearly", "0 0 1 1 *"},
                 {"@annually", "0 0 1 1 *"}};
    static const struct {
        unsigned min, max;
    } ranges[SCHEDULE_FIELDS] = {{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}};
    struct schedule s = {.every_s = 0};
    struct str rest = str_trim(text), one;
    bool any[SCHEDULE_FIELDS];

    if (str_starts(rest, STR("@every "))) {
        if (schedule_duration(str_trim(str_sub(rest, strlen("@every "))), &s.every_s) < 0)
            return -EINVAL;
        *ret_schedule = s;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (str_eqc(rest, names[i].name))
            rest = str_of(names[i].fields);
    for (size_t i = 0; i < SCHEDULE_FIELDS; i++) {
        ssize_t space = str_find_char(rest, ' ');

        one = space < 0 ? rest : str_n(rest.p, (size_t)space);
        rest = space < 0 ? STR("") : str_trim(str_sub(rest, (size_t)space));
        any[i] = one.n && (one.p[0] == '*' || one.p[0] == '?');
        if (schedule_field(one, ranges[i].min, ranges[i].max, &s.bits[i]) < 0)
            return -EINVAL;
    }
    if (rest.n)
        return -EINVAL;
    if (s.bits[SCHEDULE_WEEKDAY] & 1U << 7)
        s.bits[SCHEDULE_WEEKDAY] = (s.bits[SCHEDULE_WEEKDAY] | 1) & 0x7f;
    s.is_either = !any[SCHEDULE_DAY] && !any[SCHEDULE_WEEKDAY];
    *ret_schedule = s;
    return 0;
}

/* As the script wants them: " 00 05 55 ". */
static struct str schedule_text(struct arena *a, const struct schedule *s, size_t field)
{
    AUTO_BUF struct buf b = BUF_INIT(512);

    buf_append_char(&b, ' ');
    for (unsigned n = 0; n < 60; n++)
        if (s->bits[field] >> n & 1)
            buf_printf(&b, field == SCHEDULE_WEEKDAY ? "%u " : "%02u ", n);
    return str_of(arena_strndup(a, buf_data(&b), buf_len(&b)));
}

/* ---- what is asked for ---- */

static int hook_read(const json_t *one, const char *what, int64_t max_s, bool is_periodic, struct arena *a,
                     struct osb_hook *h, struct err *err)
{
    struct str schedule = STR("");
    int r;

    *h = (struct osb_hook){.name = STR(""), .timeout_s = DEFAULT_S};
    if (!json_is_object(one))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be an object", what);
    r = is_periodic ? JSON_WANTS(one, a, err, JSON_NEED_STR("name", &h->name), JSON_NEED_STR("schedule", &schedule),
                                 JSON_WANT_STRS("command", &h->command, &h->n),
                                 JSON_WANT_INT("timeoutSeconds", 1, max_s, &h->timeout_s))
                    : JSON_WANTS(one, a, err, JSON_WANT_STRS("command", &h->command, &h->n),
                                 JSON_WANT_INT("timeoutSeconds", 1, max_s, &h->timeout_s));
    if (r < 0)
        return err_prefix(err, "%s", what);
    if (!h->n || !h->command[0].n)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s.command must be a list of at least one string", what);
    if (h->name.n > NAME_LEN_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s.name: at most %d characters", what, NAME_LEN_MAX);
    if (is_periodic && schedule_parse(schedule, &h->schedule) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "%s.schedule: '%.*s' is neither five fields of cron nor \"@every 1h30m\"", what,
                       (int)MIN(schedule.n, (size_t)64), schedule.p);
    return 0;
}

int hooks_read(const json_t *body, struct arena *a, struct osb_hooks **ret_hooks, struct err *err)
{
    struct osb_hooks *h = arena_alloc(a, sizeof(*h));
    json_t *all = NULL, *pre = NULL, *periodic = NULL, *one;
    char what[64];
    size_t i;

    *h = (struct osb_hooks){.n_periodic = 0};
    if (json_get_object(body, "lifecycle", &all, err) < 0)
        return -1;
    if (all && JSON_WANTS(all, a, err, JSON_WANT_OBJECT("preStart", &pre), JSON_WANT_ARRAY("periodic", &periodic)) < 0)
        return err_prefix(err, "lifecycle");
    if (pre && hook_read(pre, "lifecycle.preStart", PRE_MAX_S, false, a, &h->pre, err) < 0)
        return -1;
    if (json_array_size(periodic) > PERIODIC_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "lifecycle.periodic: at most %d hooks", PERIODIC_MAX);
    h->periodic = arena_alloc(a, (json_array_size(periodic) + 1) * sizeof(*h->periodic));
    json_array_foreach(periodic, i, one)
    {
        (void)snprintf(what, sizeof(what), "lifecycle.periodic[%zu]", i);
        if (hook_read(one, what, PERIODIC_MAX_S, true, a, &h->periodic[i], err) < 0)
            return -1;
        for (size_t k = 0; k < i; k++)
            if (str_eq(h->periodic[k].name, h->periodic[i].name))
                return err_set(err, ERR_INVALID_ARGUMENT, "%s.name: '%.*s' is already in use", what,
                               STR_ARG(h->periodic[i].name));
        h->n_periodic++;
    }
    *ret_hooks = h;
    return 0;
}

/* ---- its processes ---- */

struct hooks_entry {
    struct list node; /* in o->entries */
    struct sandbox *sb;
    struct follow *follow;
    bool has_pre;
};

static void entry_free(struct hooks_entry *e)
{
    list_remove(&e->node);
    exec_close(e->follow);
    sandbox_unref(e->sb);
    mem_free(e);
}

void hooks_free(struct opensandbox *o)
{
    LIST_FOREACH (struct hooks_entry, e, &o->entries, node)
        entry_free(e);
}

static void entry_note(const struct hooks_entry *e, const char *text)
{
    static const struct actor actor = {.name = "opensandbox", .who.view = TENANT_ANY, .is_own = true};
    const struct sandbox_info *i = sandbox_info(e->sb);
    AUTO_FREE struct pair *all = mem_array(i->n_metadata + 1, sizeof(*all));
    size_t n = 0;
    struct err ignored;

    for (size_t k = 0; k < i->n_metadata; k++)
        if (!str_eqc(i->metadata[k].key, OPENSANDBOX_RESERVED OPENSANDBOX_END))
            all[n++] = i->metadata[k];
    AUTO_FREE char *end = mem_printf("%s %s", i->id, text); /* its forks get the metadata, too */
    all[n++] = (struct pair){STR(OPENSANDBOX_RESERVED OPENSANDBOX_END), str_of(end)};
    if (i->state == SANDBOX_RUNNING)
        (void)!sandbox_set_metadata(e->sb, &actor, all, n, &ignored);
}

static void entry_writes(void *ctx, enum wire_channel channel, struct str bytes)
{
    (void)channel;
    exec_ack(((struct hooks_entry *)ctx)->follow, bytes.n);
}

static void entry_exits(void *ctx, const struct exec_exit *exit)
{
    struct hooks_entry *e = ctx;
    char text[64];

    e->follow = NULL;
    (void)snprintf(text, sizeof(text), "%s %u", exit->signaled ? "signal" : "exit status", exit->code);
    entry_note(e, e->has_pre && !exit->signaled && exit->code == FAILED_STATUS ? OPENSANDBOX_PRE_FAILED : text);
    entry_free(e);
}

static void entry_fails(void *ctx, const struct err *err)
{
    struct hooks_entry *e = ctx;

    e->follow = NULL;
    entry_note(e, err->msg);
    entry_free(e);
}

static void hooks_begin(struct opensandbox *o, struct sandbox *sb, const struct actor *actor, const char *tag,
                        const struct str *argv, size_t n, bool is_entry, bool has_pre)
{
    static const struct exec_ops ops = {.on_output = entry_writes, .on_exit = entry_exits, .on_error = entry_fails};
    const struct exec_spec spec = {
        .cmd = argv[0], .args = argv + 1, .n_args = n - 1, .user = STR("root"), .tag = str_of(tag)};
    struct hooks_entry *e = mem_new(struct hooks_entry);
    struct err err;

    list_init(&e->node);
    e->sb = sandbox_ref(sb);
    e->has_pre = has_pre;
    if (exec_start(sb, actor, &spec, &ops, e, &e->follow, &err) < 0) {
        e->follow = NULL;
        entry_note(e, err.msg);
        entry_free(e);
    } else if (is_entry) {
        list_append(&o->entries, &e->node);
    } else {
        entry_free(e); /* it goes on */
    }
}

#define WITHIN_TIME "timeout -s KILL \"$t\" "

/* "$1": what is made when the hook has ended well; "$2": its time; "$3": how many words it has. */
#define PRE_START                                                                                                      \
    "k=$1 t=$2 n=$3 h=; shift 3; rm -f \"$k\"; i=0; "                                                                  \
    "for w in \"$@\"; do i=$((i + 1)); [ $i -gt $n ] || h=\"$h \\\"\\${$i}\\\"\"; done; "                              \
    "eval \"timeout -s KILL $t $h\" </dev/null; c=$?; "                                                                \
    "[ $c = 0 ] || { echo \"preStart: exit status $c\" >&2; exit 125; }; "                                             \
    "mkdir -p " COMMAND_DIRECTORY "; : >\"$k\"; shift $n; [ $# = 0 ] || exec \"$@\""

/* "$1": what must be there, or nothing; "$2": seconds, or nothing; five lists of numbers; is it either day?; its time. */
#define PERIODIC                                                                                                       \
    "k=$1 n=$2 m=$3 h=$4 d=$5 o=$6 w=$7 e=$8 t=$9; shift 9; "                                                          \
    "while sleep \"${n:-$((60 - $(date +%s) % 60))}\"; do [ -z \"$k\" ] || [ -e \"$k\" ] || continue; "                \
    "if [ -z \"$n\" ]; then eval \"$(date '+M=%M H=%H D=%d O=%m W=%w')\"; x=; "                                        \
    "case \"$m\" in *\" $M \"*) ;; *) continue ;; esac; case \"$h\" in *\" $H \"*) ;; *) continue ;; esac; "           \
    "case \"$o\" in *\" $O \"*) ;; *) continue ;; esac; "                                                              \
    "case \"$d\" in *\" $D \"*) x=d ;; esac; case \"$w\" in *\" $W \"*) x=w$x ;; esac; "                               \
    "case \"$e$x\" in 0wd | 1?*) ;; *) continue ;; esac; fi; " WITHIN_TIME                                             \
    "\"$@\" </dev/null; c=$?; [ $c = 0 ] || echo \"exit status $c\" >&2; done"

static struct str hooks_text(struct arena *a, uint64_t n)
{
    return str_of(arena_printf(a, "%llu", (unsigned long long)n));
}

void hooks_start(struct opensandbox *o, struct arena *a, const struct osb_hooks *hooks, const struct str *entrypoint,
                 size_t n_entrypoint, struct sandbox *sb, const struct actor *actor)
{
    const struct osb_hook *pre = &hooks->pre;
    struct str mark = str_of(arena_printf(a, COMMAND_DIRECTORY "/started-%s", sandbox_info(sb)->id));
    struct str *argv = arena_alloc(a, (pre->n + n_entrypoint + 8) * sizeof(*argv));
    size_t n = 0;

    if (pre->n) {
        const struct str begin[] = {
            STR("/bin/sh"),       STR("-c"), STR(PRE_START), STR("sh"), mark, hooks_text(a, (uint64_t)pre->timeout_s),
            hooks_text(a, pre->n)};

        memcpy(argv, begin, sizeof(begin));
        n = ARRAY_SIZE(begin);
        memcpy(argv + n, pre->command, pre->n * sizeof(*argv));
        n += pre->n;
    }
    if (n_entrypoint)
        memcpy(argv + n, entrypoint, n_entrypoint * sizeof(*argv));
    n += n_entrypoint;
    if (n)
        hooks_begin(o, sb, actor, OPENSANDBOX_TAG "entrypoint", argv, n, true, pre->n);
    for (size_t i = 0; i < hooks->n_periodic; i++) {
        const struct osb_hook *h = &hooks->periodic[i];
        const struct schedule *s = &h->schedule;
        const struct str begin[] = {STR("/bin/sh"),
                                    STR("-c"),
                                    STR(PERIODIC),
                                    STR("sh"),
                                    pre->n ? mark : STR(""),
                                    s->every_s ? hooks_text(a, s->every_s) : STR(""),
                                    schedule_text(a, s, SCHEDULE_MINUTE),
                                    schedule_text(a, s, SCHEDULE_HOUR),
                                    schedule_text(a, s, SCHEDULE_DAY),
                                    schedule_text(a, s, SCHEDULE_MONTH),
                                    schedule_text(a, s, SCHEDULE_WEEKDAY),
                                    hooks_text(a, s->is_either),
                                    hooks_text(a, (uint64_t)h->timeout_s)};
        struct str *all = arena_alloc(a, (ARRAY_SIZE(begin) + h->n) * sizeof(*all));

        memcpy(all, begin, sizeof(begin));
        memcpy(all + ARRAY_SIZE(begin), h->command, h->n * sizeof(*all));
        hooks_begin(o, sb, actor, arena_printf(a, OPENSANDBOX_TAG "periodic:%.*s", STR_ARG(h->name)), all,
                    ARRAY_SIZE(begin) + h->n, false, false);
    }
}
