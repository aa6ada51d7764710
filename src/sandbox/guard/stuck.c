/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whoever does the same again and again is stuck. Of each actor in a sandbox the last actions are kept as digests of
 * what was asked and what came of it:
 *
 *   repeat       the same action with the same result, 4 times
 *   error        the same action, and it failed, 3 times
 *   alternation  two actions in turn with the same results, 6 in all
 *
 *  1. Looked at are commands and operations on files, in the order in which they began, once their result is known.
 *     What still runs is left out.
 *  2. It is told once, until the actor does something else.
 *  3. It is kept in memory: another worker begins anew.
 */
#include "base/mem.h"
#include "event/json.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/life/pause.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

enum { WINDOW = 20, ACTORS_MAX = 8, REPEATS = 4, ERRORS = 3, ALTERNATIONS = 6 };

struct stuck_action {
    uint64_t seq, asked, result; /* asked, result: digests */
    bool is_done, failed;
};

struct stuck_actor {
    uint64_t name;                    /* digest */
    struct stuck_action last[WINDOW]; /* the oldest first */
    size_t n;
    const char *pattern; /* that was told */
};

struct stuck {
    struct sandbox *sb;
    struct stuck_actor *actors[ACTORS_MAX]; /* the one that acted last first */
    struct loop_job job;
    enum guard_stuck action; /* of the job, which holds a reference on the sandbox */
};

static uint64_t stuck_digest(uint64_t h, struct str s)
{
    for (uint64_t word; s.n; s = str_sub(s, MIN(s.n, sizeof(word)))) {
        word = s.n;
        memcpy(&word, s.p, MIN(s.n, sizeof(word)));
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h;
}

static const struct actor stuck_guard = {.name = "guard", .is_own = true};

static void stuck_act(struct loop_job *job)
{
    struct stuck *s = container_of(job, struct stuck, job);
    struct sandbox *sb = s->sb;
    struct err err;
    if (sb->info.state == SANDBOX_RUNNING &&
        (s->action == STUCK_KILL ? sandbox_kill(sb, &stuck_guard, sandbox_ignore, NULL, &err)
                                 : sandbox_pause(sb, &stuck_guard, true, sandbox_ignore, NULL, &err)) < 0)
        core_unrecorded(sb->core, &err);
    sandbox_unref(sb);
}

/* The one with this name, which is the first one then; a new one in place of the one that was silent longest. */
static struct stuck_actor *stuck_actor(struct stuck *s, uint64_t name)
{
    size_t i = 0;
    while (i < ACTORS_MAX - 1 && s->actors[i] && s->actors[i]->name != name)
        i++;
    struct stuck_actor *a = s->actors[i];
    if (!a)
        a = mem_new(struct stuck_actor);
    if (a->name != name)
        *a = (struct stuck_actor){.name = name};
    memmove(s->actors + 1, s->actors, i * sizeof(struct stuck_actor *));
    return s->actors[0] = a;
}

void stuck_action(struct core *core, const struct event_draft *action, uint64_t seq)
{
    bool is_file =
        action->kind >= EVENT_FILE_READ && action->kind <= EVENT_FILE_UNPACK && action->kind != EVENT_FILE_STAT;
    struct sandbox *sb =
        is_file || action->kind == EVENT_EXEC_START ? map_get(&core->by_id, str_of(action->sandbox)) : NULL;
    /*
     * Not what 'cove env' fetches the copy with. A client's word is enough: who varies its commands isn't seen either.
     */
    struct str tag;
    if (!sb || sb->info.hidden || (json_member(action->data, "tag", &tag) && str_eqc(tag, "\"cove-env\"")))
        return;
    if (!sb->stuck) {
        sb->stuck = mem_new(struct stuck);
        sb->stuck->sb = sb;
        loop_job_init(&sb->stuck->job, stuck_act);
    }
    struct stuck_actor *a = stuck_actor(sb->stuck, stuck_digest(1, action->actor));
    if (a->n == WINDOW)
        memmove(a->last, a->last + 1, --a->n * sizeof(*a->last));
    a->last[a->n++] = (struct stuck_action){.seq = seq, .asked = stuck_digest(action->kind, action->data)};
}

/* The last k that are done, newest first. */
static size_t stuck_done(const struct stuck_actor *a, const struct stuck_action *ret_last[static WINDOW])
{
    size_t n = 0;
    for (size_t i = a->n; i-- > 0;)
        if (a->last[i].is_done)
            ret_last[n++] = &a->last[i];
    return n;
}

static bool stuck_same(const struct stuck_action *a, const struct stuck_action *b)
{
    return a->asked == b->asked && a->result == b->result;
}

static const char *stuck_pattern(const struct stuck_action *const *last, size_t n, size_t *ret_n)
{
    size_t same = 1, failed = n && last[0]->failed, turns = 2;
    while (same < n && stuck_same(last[0], last[same]))
        same++;
    while (failed && failed < n && last[failed]->failed && last[failed]->asked == last[0]->asked)
        failed++;
    while (n > 1 && turns < n && !stuck_same(last[0], last[1]) && stuck_same(last[turns], last[turns - 2]))
        turns++;
    *ret_n = failed >= ERRORS ? failed : same >= REPEATS ? same : turns;
    return failed >= ERRORS ? "error" : same >= REPEATS ? "repeat" : n && turns >= ALTERNATIONS ? "alternation" : NULL;
}

static void stuck_tell(struct sandbox *sb, const struct stuck_action *const *last, size_t n, const char *pattern)
{
    AUTO_BUF struct buf seqs = BUF_INIT(1024);
    struct stuck *s = sb->stuck;
    enum guard_stuck action = guard_stuck_of(sb);
    if (action == STUCK_OFF)
        return;
    for (size_t i = n; i-- > 0;)
        buf_printf(&seqs, "%s%llu", buf_len(&seqs) ? "," : "[", (unsigned long long)last[i]->seq);
    (void)buf_append_char(&seqs, ']');
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("pattern", pattern), DATA_JSON("actions", buf_str(&seqs)),
                                                     DATA_STR("do", action == STUCK_KILL    ? "kill"
                                                                    : action == STUCK_PAUSE ? "pause"
                                                                                            : "notify"));
    (void)action_note(sb->core, sb->info.id, NULL, last[0]->seq, EVENT_GUARD_STUCK, event_data_end(&d));
    sb->info.stuck = pattern;
    if (action == STUCK_NOTIFY || !list_empty(&s->job.node))
        return;
    s->action = action;
    (void)sandbox_ref(sb);
    loop_later(sb->core->loop, &s->job);
}

static void stuck_look(struct sandbox *sb, struct stuck_actor *a)
{
    const struct stuck_action *last[WINDOW] = {NULL};
    size_t n;
    const char *pattern = stuck_pattern(last, stuck_done(a, last), &n);
    if (pattern && !a->pattern)
        stuck_tell(sb, last, n, pattern);
    a->pattern = pattern;
    sb->info.stuck = pattern && sb->info.stuck ? pattern : NULL;
    for (size_t i = 0; !pattern && i < ACTORS_MAX && sb->stuck->actors[i]; i++)
        if (sb->stuck->actors[i]->pattern)
            sb->info.stuck = sb->stuck->actors[i]->pattern;
}

static struct stuck_action *stuck_find(const struct stuck *s, uint64_t seq, struct stuck_actor **ret_actor)
{
    for (size_t i = 0; i < ACTORS_MAX && s->actors[i]; i++)
        for (size_t k = s->actors[i]->n; k-- > 0;)
            if (s->actors[i]->last[k].seq == seq) {
                *ret_actor = s->actors[i];
                return &s->actors[i]->last[k];
            }
    return NULL;
}

void stuck_result(struct sandbox *sb, const struct event_draft *result)
{
    /* What is the same each time: no pids, no durations. */
    static const char *const members[] = {"exit_code", "signal",  "output_bytes", "tail",   "tail_base64",
                                          "bytes",     "entries", "code",         "message"};
    struct stuck_actor *actor;
    struct stuck_action *a = result->cause ? stuck_find(sb->stuck, result->cause, &actor) : NULL;
    struct str value;
    if (!a || a->is_done)
        return;
    if (result->kind == EVENT_EXEC_OUTPUT) {
        a->result = stuck_digest(a->result + 1, json_member(result->data, "output", &value) ? value : STR_NULL);
        return;
    }
    a->failed = result->kind == EVENT_EXEC_FAILED || result->kind == EVENT_FILE_FAILED;
    a->is_done = a->failed || result->kind == EVENT_EXEC_EXIT || result->kind == EVENT_FILE_DONE;
    if (!a->is_done)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        if (json_member(result->data, members[i], &value)) {
            a->result = stuck_digest(a->result + i + 2, value);
            a->failed |= (i == 0 && !str_eqc(value, "0")) || i == 1;
        }
    stuck_look(sb, actor);
}

void stuck_free(struct sandbox *sb)
{
    for (size_t i = 0; sb->stuck && i < ACTORS_MAX; i++)
        mem_free(sb->stuck->actors[i]);
    mem_free(TAKE_PTR(sb->stuck));
}
