/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entrypoint of a sandbox, and its hooks: what runs before it, and what runs by a schedule. All of it are processes
 * inside, so that it is frozen and kept through restarts as everything there is, and what it writes is in the sandbox's
 * log.
 *
 *  1. preStart and the entrypoint are one process: a shell that becomes the entrypoint when the hook ended well, and
 *     else ends with FAILED_STATUS. No hook: the entrypoint itself.
 *  2. A periodic hook is a shell that sleeps until its schedule, which was read and written out here. It does nothing
 *     before preStart has ended well, and does not overlap with itself.
 *  3. How the entrypoint ended stands in the sandbox's metadata (OPENSANDBOX_END), while we see it: after a restart of
 *     this worker the log alone tells. Until then, why a periodic hook does not run.
 */
#include "api/opensandbox/handlers.h"
#include "base/mem.h"
#include "config/units.h"

enum {
    FAILED_STATUS = 125,
    DEFAULT_S = 60,
    PRE_MAX_S = 10800,
    PERIODIC_MAX_S = 300,
    PERIODIC_MAX = 32,
    NAME_LEN_MAX = 63,
    DAY = 2,
    MONTH = 3,
    WEEKDAY = 4,
    WEEKDAY_MAX = 7 /* no other field's */
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
    uint64_t ms;
    if (str_find_char(text, 'd') >= 0 || unit_parse_duration(text, &ms) < 0 || ms < 1000 || ms / 1000 > UINT32_MAX)
        return -EINVAL;
    *ret_s = ms / 1000;
    return 0;
}

static bool schedule_number(struct str text, uint64_t min, uint64_t max, uint64_t *ret_n)
{
    return text.n && text.n <= 2 && str_to_u64(text, ret_n) == 0 && *ret_n >= min && *ret_n <= max;
}

static bool schedule_is_any(struct str text)
{
    return str_eqc(text, "*") || str_eqc(text, "?");
}

/* "5", "1-5", "0-30/10,45": "(05)", "(01|02|03|04|05)", "(00|10|20|30|45)". */
static int schedule_field(struct str text, unsigned min, unsigned max, struct buf *to)
{
    struct str step, end, begin;
    if (schedule_is_any(text))
        return buf_append_cstr(to, ".+");
    for (char before = '('; str_split(&text, ',', &step); before = '|') {
        uint64_t first = min, last = max, by = 1;
        (void)str_split(&step, '/', &end);
        (void)str_split(&end, '-', &begin);
        bool is_any = schedule_is_any(begin) && !end.p;
        if ((step.p && !schedule_number(step, 1, max, &by)) || (!is_any && !schedule_number(begin, min, max, &first)) ||
            (end.p && !schedule_number(end, first, max, &last)))
            return -EINVAL;
        if (!is_any && !end.p && !step.p)
            last = first;
        for (uint64_t n = first; n <= last; n += by, before = '|')
            buf_printf(to, max == WEEKDAY_MAX ? "%c%u" : "%c%02u", before, (unsigned)(max == WEEKDAY_MAX ? n % 7 : n));
    }
    return buf_append_cstr(to, ")");
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
    } ranges[SCHEDULE_FIELDS] = {{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, WEEKDAY_MAX}};
    struct schedule s = {.every_s = 0};
    struct str rest = str_trim(text), one;
    char f[SCHEDULE_FIELDS][256];
    bool is_either = true;
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
        AUTO_BUF struct buf b = BUF_INIT(sizeof(f[0]) - 1);
        if (!str_split(&rest, ' ', &one) || schedule_field(one, ranges[i].min, ranges[i].max, &b) < 0 ||
            buf_error(&b) < 0)
            return -EINVAL;
        (void)snprintf(f[i], sizeof(f[i]), "%.*s", (int)buf_len(&b), buf_data(&b));
        is_either &= (i != DAY && i != WEEKDAY) || (one.p[0] != '*' && one.p[0] != '?');
        rest = rest.p ? str_trim(rest) : rest;
    }
    /* The day or the weekday is enough if both are said. */
    int n = snprintf(s.pattern, sizeof(s.pattern), "^%s %s (%s %s %s|%s %s %s)$", f[0], f[1], f[DAY], f[MONTH],
                     is_either ? ".+" : f[WEEKDAY], is_either ? ".+" : f[DAY], f[MONTH], f[WEEKDAY]);
    if (rest.p || n < 0 || (size_t)n >= sizeof(s.pattern))
        return -EINVAL;
    *ret_schedule = s;
    return 0;
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
                       STR_ARG_MAX(schedule, 64));
    return 0;
}

int hooks_read(const json_t *body, struct arena *a, struct osb_hooks **ret_hooks, struct err *err)
{
    struct osb_hooks *h = arena_alloc(a, sizeof(*h));
    json_t *all = NULL, *pre = NULL, *periodic = NULL;
    char what[64];
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
    JSON_FOREACH_AT (i, one, periodic) {
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
    AUTO_FREE char *end = mem_printf("%s %s", i->id, text); /* its forks get the metadata, too */
    struct err ignored;
    if (i->state == SANDBOX_RUNNING)
        (void)!sandbox_set_label(e->sb, &actor, STR(OPENSANDBOX_RESERVED OPENSANDBOX_END), str_of(end), &ignored);
}

static void entry_ends(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct hooks_entry *e = ctx;
    char text[64];
    assert(exit || err);
    if (exit)
        (void)snprintf(text, sizeof(text), "%s %u", exit->signaled ? "signal" : "exit status", exit->code);
    entry_note(e, err                                                            ? err->msg
                  : e->has_pre && !exit->signaled && exit->code == FAILED_STATUS ? OPENSANDBOX_PRE_FAILED
                                                                                 : text);
    entry_free(e);
}

/*
 * What is around a hook's words stands in the script, and so do preStart's: "$@" is the entrypoint, or the periodic
 * hook. So the guard, which reads shells, judges what really runs.
 */
static char *hooks_pre_start(struct arena *a, const struct osb_hook *h, const char *mark, bool has_entrypoint)
{
    AUTO_BUF struct buf words = BUF_INIT(8 << 20);
    for (size_t i = 0; i < h->n; i++) {
        struct str rest = h->command[i], part;
        for (const char *quote = " '"; str_split(&rest, '\'', &part); quote = "'\\''")
            buf_printf(&words, "%s%.*s", quote, STR_ARG(part));
        buf_append_char(&words, '\'');
    }
    return arena_printf(a,
                        "rm -f %s; timeout -s KILL %lld%.*s </dev/null || "
                        "{ echo \"preStart: exit status $?\" >&2; exit %d; }; " COMMAND_MAKE_DIRECTORY "; : >%s%s",
                        mark, (long long)h->timeout_s, (int)buf_len(&words), buf_data(&words), FAILED_STATUS, mark,
                        has_entrypoint ? "; exec \"$@\"" : "");
}

static char *hooks_periodic(struct arena *a, const struct osb_hook *h, const char *mark)
{
    char every[40] = "$(expr 60 - $(date +%s) % 60)";
    if (h->schedule.every_s)
        (void)snprintf(every, sizeof(every), "%llu", (unsigned long long)h->schedule.every_s);
    return arena_printf(a,
                        "while sleep %s; do %s%s%s%s%s%s"
                        "timeout -s KILL %lld \"$@\" </dev/null || echo \"exit status $?\" >&2; done",
                        every, mark ? "[ -e " : "", mark ? mark : "", mark ? " ] || continue; " : "",
                        h->schedule.every_s ? "" : "date '+%M %H %d %m %w' | grep -qE '", h->schedule.pattern,
                        h->schedule.every_s ? "" : "' || continue; ", (long long)h->timeout_s);
}

/* "/bin/sh -c SCRIPT sh WORDS", or the words alone. */
static void hooks_begin(struct opensandbox *o, struct arena *a, struct sandbox *sb, const struct actor *actor,
                        const char *tag, const char *script, const struct str *words, size_t n, bool is_entry)
{
    static const struct exec_ops ops = {.on_end = entry_ends};
    const struct str begin[] = {STR("/bin/sh"), STR("-c"), str_of(script), STR("sh")};
    size_t n_begin = script ? ARRAY_SIZE(begin) : 0;
    struct str *argv = arena_alloc(a, (n_begin + n + 1) * sizeof(*argv));
    struct hooks_entry *e = mem_new(struct hooks_entry);
    struct actor own = *actor;
    struct err err;
    memcpy(argv, begin, n_begin * sizeof(*argv));
    if (n)
        memcpy(argv + n_begin, words, n * sizeof(*argv));
    const struct exec_spec spec = {
        .cmd = argv[0], .args = argv + 1, .n_args = n_begin + n - 1, .user = STR("root"), .tag = str_of(tag)};
    own.holder = NULL; /* the client has its answer, so nobody waits for another one */
    list_init(&e->node);
    e->sb = sandbox_ref(sb);
    e->has_pre = script;
    if (exec_start(sb, &own, &spec, &ops, e, &e->follow, &err) < 0) {
        AUTO_FREE char *why = mem_printf("%s: %s", tag + strlen(OPENSANDBOX_TAG), err.msg);
        entry_note(e, is_entry ? err.msg : why);
        entry_free(e);
    } else if (is_entry) {
        list_append(&o->entries, &e->node);
    } else {
        entry_free(e); /* it goes on */
    }
}

void hooks_start(struct opensandbox *o, struct arena *a, const struct osb_hooks *hooks, const struct str *entrypoint,
                 size_t n_entrypoint, struct sandbox *sb, const struct actor *actor)
{
    const char *mark = hooks->pre.n ? arena_printf(a, COMMAND_DIRECTORY "/started-%s", sandbox_info(sb)->id) : NULL;
    for (size_t i = 0; i < hooks->n_periodic; i++) {
        const struct osb_hook *h = &hooks->periodic[i];
        hooks_begin(o, a, sb, actor, arena_printf(a, OPENSANDBOX_TAG OPENSANDBOX_PERIODIC "%.*s", STR_ARG(h->name)),
                    hooks_periodic(a, h, mark), h->command, h->n, false);
    }
    if (mark || n_entrypoint)
        hooks_begin(o, a, sb, actor, OPENSANDBOX_TAG "entrypoint",
                    mark ? hooks_pre_start(a, &hooks->pre, mark, n_entrypoint) : NULL, entrypoint, n_entrypoint, true);
}
