/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *  1. A context lives as long as its sandbox, or until it is removed. Its runner is another matter: it is started when
 *     a cell wants it, and may end at any time. Then the cells that there are end with an error that says how, and the
 *     next one starts another runner under the same id.
 *  2. Cells are a queue; the first one is sent when the runner has said READY and the one before has ended. It ends
 *     with END of its number, which nobody can guess beforehand, or with its runner.
 *  3. Output is acknowledged when the client has it. What comes of a cell whose client has gone is dropped; that cell
 *     gets SIGINT, again and again until it ends.
 *  4. Runners pass the gate as processes do (exec.start, exec.signal), cells as code.run. What is fed to a runner is no
 *     action of its own.
 *  5. Whatever a runner says that is no frame, or comes where it can't, ends it.
 *  6. The tag of a runner says which context it is of, so that another worker can take it over (code_adopt()), or the
 *     same one when it goes on from memory. What asks for contexts waits until it is known which processes there are.
 */
#include "base/mem.h"
#include "sandbox/code/internal.h"
#include "sandbox/exec/exec_life.h"

#include <signal.h>

#define HOME "/home/user"

/* ---- what there is ---- */

static struct str code_variable(const struct sandbox *sb)
{
    for (size_t i = 0; i < sb->info.n_envs; i++)
        if (str_eqc(sb->info.envs[i].key, "COVE_CODE"))
            return sb->info.envs[i].value;
    return STR("");
}

bool code_is_here(const struct sandbox *sb)
{
    struct str value = code_variable(sb);
    return value.n && value.p[0] == '/';
}

const char *code_known(struct str name)
{
    static const char *const names[] = {"python", "javascript", "typescript", "bash", "r", "java"};
    if (str_eqc(name, "js") || str_eqc(name, "ts"))
        return name.p[0] == 'j' ? names[1] : names[2];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (str_eqc(name, names[i]))
            return names[i];
    return NULL;
}

bool code_has(const struct code *code, const char *language)
{
    struct str all = code->languages, one;
    while (language && str_split(&all, ' ', &one))
        if (str_eqc(one, language))
            return true;
    return language && str_eqc(all, language);
}

struct code_context *context_new(struct code *code, struct str id, const char *language, struct str cwd)
{
    struct code_context *x = mem_new(struct code_context);
    *x = (struct code_context){.code = code, .language = language, .rest = BUF_INIT(CODE_FRAME_MAX + 8)};
    memcpy(x->id, id.p, MIN(id.n, (size_t)CODE_ID_MAX));
    x->cwd = cwd.n ? mem_strndup(cwd.p, cwd.n) : mem_strdup(HOME);
    x->tag = mem_printf(CODE_TAG "%s:%s:%s", x->id, language, x->cwd);
    list_init(&x->cells);
    list_append(&code->contexts, &x->node);
    code->n++;
    return x;
}

void context_free(struct code_context *x)
{
    assert(list_empty(&x->cells));
    exec_close(x->follow);
    exec_call_cancel(x->feed);
    loop_alarm_clear(x->code->sb->core->loop, &x->again);
    list_remove(&x->node);
    x->code->n--;
    if (x->making)
        x->making->of = NULL;
    buf_fini(&x->rest);
    charge_release(&x->charge);
    MEM_FREE(x->cwd, x->tag, x);
}

struct code_context *context_find(struct code *code, struct str id)
{
    LIST_FOREACH (struct code_context, x, &code->contexts, node)
        if (!x->removed && str_eqc(id, x->id))
            return x;
    return NULL;
}

struct code_context *context_default(struct code *code, const char *language)
{
    char id[ID_UUID_LEN + 1];
    LIST_FOREACH (struct code_context, x, &code->contexts, node)
        if (x->is_default && !x->removed && strcmp(x->language, language) == 0)
            return x;
    id_uuid(id);
    struct code_context *x = context_new(code, str_of(id), language, STR(""));
    x->is_default = true;
    return x;
}

/* The contexts that there are, once that can be known. */
static void code_look(struct code *code)
{
    static const char *const first[] = {"python", "javascript"};
    struct err err;
    if (code->sb->taking_over || sandbox_usable(code->sb, &err) < 0)
        return;
    code_adopt(code);
    if (code->has_first)
        return;
    code->has_first = true;
    for (size_t i = 0; i < ARRAY_SIZE(first); i++)
        if (code_has(code, first[i]))
            (void)context_default(code, first[i]);
}

struct code *code_of(struct sandbox *sb)
{
    struct code *code = sb->code;
    struct str value = code_variable(sb), directory;
    if (code) {
        code_look(code);
        return code;
    }
    code = sb->code = mem_new(struct code);
    code->sb = sb;
    list_init(&code->contexts);
    if (str_split(&value, ' ', &directory)) {
        code->directory = arena_strndup(&sb->arena, directory.p, directory.n);
        code->languages = value;
    } else {
        code->directory = arena_strndup(&sb->arena, value.p, value.n);
    }
    code_look(code);
    return code;
}

int code_settled(struct sandbox *sb, const struct actor *actor, struct err *err)
{
    return exec_recovered(sb, actor->holder, err);
}

void code_each(struct sandbox *sb, bool (*fn)(void *ctx, const struct code_context_info *info), void *ctx)
{
    if (!code_is_here(sb))
        return;
    LIST_FOREACH (struct code_context, x, &code_of(sb)->contexts, node)
        if (!x->removed && !fn(ctx, &(struct code_context_info){x->id, x->language, x->cwd, !list_empty(&x->cells)}))
            return;
}

static int code_missing(struct err *err)
{
    return err_set(err, ERR_UNIMPLEMENTED,
                   "the sandbox's template can't run code: use \"code-interpreter\" (cove template add)");
}

const char *code_language(struct sandbox *sb, struct str name, struct err *err)
{
    if (!code_is_here(sb)) {
        (void)code_missing(err);
        return NULL;
    }
    struct code *code = code_of(sb);
    const char *language = code_known(name);

    if (code_has(code, language))
        return language;
    (void)err_set(err, ERR_INVALID_ARGUMENT, "the language \"%.*s\" is not in this template; there is %.*s",
                  STR_ARG_MAX(name, 64), STR_ARG(code->languages));
    return NULL;
}

/* ---- contexts for façades ---- */

int code_usable(struct sandbox *sb, const struct actor *actor, struct err *err)
{
    if (sandbox_usable(sb, err) < 0)
        return -1;
    return code_is_here(sb) ? code_settled(sb, actor, err) : code_missing(err);
}

int code_make(struct sandbox *sb, const struct actor *actor, struct str id, const char *language, struct str cwd,
              code_made_fn done, void *ctx, struct code_making **ret_making, struct err *err)
{
    if (code_usable(sb, actor, err) < 0)
        return -1;
    struct code *code = code_of(sb);
    if (!id.n || id.n > CODE_ID_MAX || context_find(code, id))
        return err_set(err, ERR_ALREADY_EXISTS, "the context exists");
    if (code->n >= CODE_CONTEXTS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "the sandbox has %d contexts, which is the limit",
                       CODE_CONTEXTS_MAX);
    if (cwd.n && (cwd.p[0] != '/' || cwd.n > 512))
        return err_set(err, ERR_INVALID_ARGUMENT, "cwd must be an absolute path of 512 bytes at most");
    struct code_context *x = context_new(code, id, language, cwd);
    if (context_start(x, actor, false, err) < 0) {
        context_free(x);
        return -1;
    }
    x->making = mem_new(struct code_making);
    *x->making = (struct code_making){x, done, ctx};
    *ret_making = x->making;
    return 0;
}

int code_warm(struct sandbox *sb, const struct actor *actor, code_made_fn done, void *ctx, struct err *err)
{
    if (!code_is_here(sb) || !code_has(code_of(sb), "python"))
        return 1;
    struct code_context *x = context_default(sb->code, "python");
    if (x->follow)
        return 1;
    if (context_start(x, actor, true, err) < 0)
        return -1;
    x->making = mem_new(struct code_making);
    *x->making = (struct code_making){x, done, ctx};
    return 0;
}

void code_make_cancel(struct code_making *m)
{
    if (!m)
        return;
    if (m->of)
        m->of->making = NULL;
    mem_free(m);
}

/* Its runner goes: with SIGTERM, which those that stand for another process understand, then with SIGKILL. */
static int context_stop(struct sandbox *sb, const struct actor *actor, struct str id, bool removes, struct err *err)
{
    if (code_usable(sb, actor, err) < 0)
        return -1;
    struct code_context *x = context_find(code_of(sb), id);
    if (!x)
        return err_set(err, ERR_NOT_FOUND, "Context %.*s not found", STR_ARG_MAX(id, CODE_ID_MAX));
    uint64_t cause;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("context", x->id));
    if (action_begin(sb, actor, removes ? EVENT_CODE_REMOVE : EVENT_CODE_RESTART, event_data_end(&d), &cause, err) < 0)
        return -1;
    x->removed = removes;
    if (!x->follow) {
        if (removes && list_empty(&x->cells))
            context_free(x);
        return 0;
    }
    x->restarts = !removes;
    LIST_FOREACH (struct code_cell, cell, &x->cells, node)
        cell->is_restarted = true;
    context_signal(x, SIGTERM);
    context_kill_later(x);
    return 0;
}

int code_restart(struct sandbox *sb, const struct actor *actor, struct str id, struct err *err)
{
    return context_stop(sb, actor, id, false, err);
}

int code_remove(struct sandbox *sb, const struct actor *actor, struct str id, struct err *err)
{
    return context_stop(sb, actor, id, true, err);
}

void code_free(struct sandbox *sb)
{
    struct code *code = TAKE_PTR(sb->code);
    const struct err why = {.code = ERR_UNAVAILABLE, .msg = "the sandbox has ended"};
    if (!code)
        return;
    while (!list_empty(&code->contexts)) {
        struct code_context *x = LIST_FIRST(struct code_context, &code->contexts, node);
        x->removed = true;
        context_over(x, &why);
    }
    mem_free(code);
}
