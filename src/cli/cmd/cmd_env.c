/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/domain/vault_client.h"
#include "cli/env/env.h"
#include "cli/env/kept.h"
#include "cli/env/proposal.h"
#include "cli/env/provenance.h"
#include "cli/env/review.h"
#include "cli/env/settings.h"
#include "cli/exec/terminal.h"
#include "cli/net_flags.h"
#include "cli/print.h"
#include "cli/things.h"

#include <unistd.h>

static const struct flag env_flags[] = {
    {0, "repo", "DIR", "The repository. Default: the one that the current directory is in."},
    {0, "from", "REVISION", "create: the commit to start from; rebase: the new one. Default: HEAD."},
    {0, "profile", "NAME", "create, propose: takes this profile of .cove/env.yaml."},
    {0, "template", "NAME", "create: the sandbox's template. Default: that of .cove/env.yaml, else base."},
    {0, "shallow", NULL, "create: leaves out the commit's history; faster if that is long."},
    NET_FLAGS,
    NET_SECRET_FLAG,
    {'m', "message", "TEXT", "commit, propose: what it is about."},
    {0, "stat", NULL, "diff, compare: shows how much changed in each file."},
    {0, "patch", NULL,
     "diff, compare: shows the changes (default); apply: changes the files here, uncommitted changes included, "
     "and commits nothing."},
    {0, "squash", NULL, "apply: stages everything as one change and commits nothing."},
};

enum { UNMERGED_MAX = 16 << 20, REFS_MAX = 64 * 1024 };

struct env_options {
    const char *repo, *from, *profile, *template, *message;
    bool is_shallow, stat, patch, squash;
    struct net_flags net;
};

struct env_call {
    struct context *ctx;
    const struct env_options *o;
    struct env e;
    char *const *rest; /* operands behind the name */
};

/* What is inside, when there is something to ask; what was received before is there in any case. */
static int env_refresh(struct env *e)
{
    return !e->id ? env_look(e) : env_wake(e) < 0 ? -1 : provenance_receive(e);
}

static int env_finish(struct env_call *c, int done)
{
    return done < 0 ? context_fail(c->ctx, STATUS_FAILED) : STATUS_OK;
}

static int env_say(struct env_call *c, int done, const char *what)
{
    if (done >= 0 && !c->ctx->json)
        (void)printf("%s is %s\n", c->e.name, what);
    return env_finish(c, done);
}

/* Whoever commits in an environment writes .cove/env.yaml, too: what of that HEAD hasn't is no person's word. */
static void env_close(struct env_call *c, const char *commit, json_t *spec)
{
    if (!json_object_get(spec, "network") ||
        REPO_GIT(&c->e.repo, REPO_THEIRS, "merge-base", "--is-ancestor", commit, "HEAD") == 0)
        return;
    c->ctx->err.code = ERR_OK;
    (void)json_object_set_new(spec, "network", json_pack("{s:s}", "default", "deny"));
    terminal_line(stderr,
                  "cove env: HEAD doesn't have %.12s, so the hosts that its .cove/env.yaml allows stay closed: --allow "
                  "opens them",
                  commit);
}

static int env_do_create(struct env_call *c)
{
    AUTO_JSON json_t *spec = json_object(), *setup = NULL, *variables = NULL;
    json_t *policy = NULL;
    AUTO_FREE char *commit = repo_commit(&c->e.repo, REPO_THEIRS, c->o->from ? c->o->from : "HEAD");
    struct net_flags net = c->o->net;
    if (!commit || settings_read(&c->e.repo, commit, c->o->profile, spec, &setup, NULL) < 0 ||
        net_flags_policy(c->ctx, &net, &variables, &policy) < 0)
        return context_fail(c->ctx, STATUS_FAILED);
    if (policy)
        (void)json_object_set_new(spec, "network", policy);
    else
        env_close(c, commit, spec);
    if (c->o->template && json_object_set_new(spec, "template", json_string(c->o->template)) < 0)
        return context_usage(c->ctx, "--template must be UTF-8");
    if (vault_check_names(c->ctx, net.secrets, policy) < 0)
        return context_fail(c->ctx, STATUS_FAILED);
    if (variables)
        (void)json_object_update(json_setdefault(spec, "env", json_object()), variables);
    if (env_create(&c->e, commit, spec, setup, !c->o->is_shallow) < 0)
        return context_fail(c->ctx, STATUS_FAILED);
    if (c->ctx->json) {
        AUTO_JSON json_t *said = json_pack("{s:s, s:s, s:s}", "name", c->e.name, "sandbox", c->e.id, "base", commit);
        print_json(said);
    } else {
        (void)printf("%s is a copy of %.12s in sandbox %s\n", c->e.name, commit, c->e.id);
    }
    return STATUS_OK;
}

static int env_run_in(struct env_call *c, char *const *argv, bool has_pty)
{
    int status;
    if (env_wake(&c->e) < 0)
        return context_fail(c->ctx, STATUS_COVE);
    AUTO_FREE char *cwd = env_here(&c->e);
    if (env_run(&c->e, cwd, argv, NULL, has_pty, &status) < 0)
        return context_fail(c->ctx, status);
    return provenance_receive(&c->e) < 0 ? context_fail(c->ctx, STATUS_COVE) : status;
}

static int env_do_run(struct env_call *c)
{
    return *c->rest ? env_run_in(c, c->rest, false)
                    : context_usage(c->ctx, "the command is missing: cove env run %s -- make test", c->e.name);
}

static int env_do_shell(struct env_call *c)
{
    char *const argv[] = {(char *)"bash", (char *)"-l", NULL};
    return isatty(STDIN_FILENO) ? env_run_in(c, argv, true) : context_usage(c->ctx, "standard input is not a terminal");
}

static size_t env_count(struct env *e, const char *from, const char *to)
{
    AUTO_BUF struct buf text = BUF_INIT(64);
    AUTO_FREE char *range = mem_printf("%s..%s", from, to);
    uint64_t n = 0;
    struct err before = e->ctx->err;
    if (REPO_ASK(&e->repo, REPO_THEIRS, &text, "rev-list", "--count", range, "--") < 0 ||
        str_to_u64(repo_line(&text), &n) < 0)
        e->ctx->err = before;
    return n;
}

static int env_services(struct env_call *c, json_t **ret_services)
{
    AUTO_JSON json_t *answer = NULL;
    AUTO_FREE char *path = c->e.id ? mem_printf("/cove/v1/sandboxes/%s/services", c->e.id) : NULL;
    if (path && service_call(c->e.service, "GET", path, NULL, "looking for services", &answer) < 0)
        return -1;
    *ret_services = json_incref(json_object_get(answer, "services"));
    return 0;
}

static int env_do_status(struct env_call *c)
{
    AUTO_BUF struct buf files = BUF_INIT(64 << 20);
    AUTO_JSON json_t *services = NULL;
    int r = env_refresh(&c->e) < 0 || REPO_ASK(&c->e.repo, REPO_OURS, &files, "diff", "--name-only", "-z",
                                               "--no-ext-diff", c->e.at.base, c->e.at.work, "--") < 0
                ? -1
                : env_services(c, &services);
    size_t n_files = 0, n = r < 0 ? 0 : env_count(&c->e, c->e.at.base, c->e.at.head);
    for (size_t i = 0; r == 0 && i < buf_len(&files); i++)
        n_files += !buf_data(&files)[i];
    if (r == 0 && c->ctx->json) {
        AUTO_JSON json_t *said = json_pack("{s:s, s:s?, s:s?, s:s, s:s, s:i, s:i, s:O*}", "name", c->e.name, "sandbox",
                                           c->e.id, "state", c->e.state, "base", c->e.at.base, "head", c->e.at.head,
                                           "commits", (int)n, "files", (int)n_files, "services", services);
        print_json(said);
    } else if (r == 0) {
        (void)printf("%s: %zu commit%s on %.12s, %zu file%s changed; sandbox %s\n", c->e.name, n, n == 1 ? "" : "s",
                     c->e.at.base, n_files, n_files == 1 ? "" : "s", c->e.id ? c->e.id : "gone");
        JSON_FOREACH (one, services) {
            const char *why = json_string_value(json_object_get(one, "error"));
            (void)printf("service %s: %s%s%s\n", json_string_value(json_object_get(one, "name")),
                         json_string_value(json_object_get(one, "state")), why ? ": " : "", why ? why : "");
        }
    }
    return env_finish(c, r);
}

static int env_do_list(struct env_call *c)
{
    AUTO_BUF struct buf refs = BUF_INIT(1 << 20);
    AUTO_JSON json_t *all = NULL, *said = json_array();
    struct str rest, name;
    if (env_sandboxes(&c->e, &all) < 0 ||
        REPO_ASK(&c->e.repo, REPO_THEIRS, &refs, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/cove/base/") < 0)
        return context_fail(c->ctx, STATUS_FAILED);
    rest = repo_line(&refs);
    while (str_split(&rest, '\n', &name) && name.n) {
        AUTO_FREE char *base = mem_printf("refs/cove/base/%.*s", STR_ARG(name)),
                       *head = mem_printf("refs/heads/cove/%.*s", STR_ARG(name));
        AUTO_FREE char *text = mem_printf("%.*s", STR_ARG(name));
        const char *id = NULL, *state = "gone";
        env_look_elsewhere(&c->e, text, all);
        JSON_FOREACH (one, all)
            if (str_eqc(name, env_label(one, "cove.env"))) {
                id = json_string_value(json_object_get(one, "id"));
                state = json_string_value(json_object_get(one, "state"));
            }
        (void)json_array_append_new(said, json_pack("{s:s%, s:s?, s:s, s:i}", "name", name.p, name.n, "sandbox", id,
                                                    "state", state, "commits", (int)env_count(&c->e, base, head)));
    }
    static const struct things_column columns[] = {{"NAME", "name", NULL},
                                                   {"SANDBOX", "sandbox", NULL},
                                                   {"STATE", "state", NULL},
                                                   {"COMMITS", "commits", things_number}};
    return things_table(c->ctx, said, columns, ARRAY_SIZE(columns));
}

static int env_do_log(struct env_call *c)
{
    AUTO_BUF struct buf text = BUF_INIT(64 << 20);
    int r = env_refresh(&c->e) < 0 ? -1 : 0;
    AUTO_FREE char *since = r < 0 ? NULL : repo_accepted(&c->e.repo, c->e.at.base);
    AUTO_FREE char *range = since ? mem_printf("%s..%s", since, c->e.at.head) : NULL;
    r = !since ? -1 : REPO_ASK(&c->e.repo, REPO_OURS, &text, "log", "--no-ext-diff", "--no-textconv", range, "--");
    print_lines(buf_str(&text));
    return env_finish(c, r);
}

static int env_show_diff(struct env_call *c, const char *from, const char *to)
{
    return review_changes(&c->e.repo, from, to, c->o->stat ? REVIEW_STAT : REVIEW_PATCH, stderr) < 0 ? -1 : 0;
}

static int env_do_diff(struct env_call *c)
{
    AUTO_FREE char *since = env_refresh(&c->e) < 0 ? NULL : repo_accepted(&c->e.repo, c->e.at.base);
    return env_finish(c, since ? env_show_diff(c, since, c->e.at.work) : -1);
}

static int env_do_compare(struct env_call *c)
{
    struct env other = {.repo.lock = -1};
    if (!*c->rest)
        return context_usage(c->ctx, "compare takes two names");
    int r = env_refresh(&c->e) < 0 || env_open(c->ctx, c->o->repo ? c->o->repo : ".", *c->rest, &other) < 0 ||
                    env_refresh(&other) < 0
                ? -1
                : env_show_diff(c, c->e.at.work, other.at.work);
    env_fini(&other);
    return env_finish(c, r);
}

static int env_do_commit(struct env_call *c)
{
    static const char script[] = "cd \"$1\" && git add -A && git commit -q -m \"$2\" >&2";
    char *const words[] = {c->e.repo.top, (char *)c->o->message, NULL};
    if (!c->o->message)
        return context_usage(c->ctx, "say with -m what the commit is about");
    return env_finish(
        c, env_wake(&c->e) < 0 || env_script(&c->e, script, words, -1, -1, NULL) < 0 ? -1 : provenance_receive(&c->e));
}

static int env_do_propose(struct env_call *c)
{
    AUTO_JSON json_t *proposal = NULL;
    if (!c->e.id)
        return env_finish(c, env_wake(&c->e));
    if (env_refresh(&c->e) < 0 || proposal_make(&c->e, c->o->profile, c->o->message, &proposal) < 0)
        return context_fail(c->ctx, STATUS_FAILED);
    if (c->ctx->json)
        print_json(proposal);
    else
        proposal_print(proposal);
    JSON_FOREACH (one, json_object_get(proposal, "checks"))
        if (json_object_get(one, "signal") || json_integer_value(json_object_get(one, "exit_code")))
            return STATUS_FAILED;
    return STATUS_OK;
}

/* The patch goes through a file: git apply reads all of it before it changes anything. */
static int env_apply_patch(struct env_call *c)
{
    FILE *patch = tmpfile();
    const char *const take[] = {"apply", "--whitespace=nowarn", "-", NULL};
    int r = patch ? repo_git(&c->e.repo, REPO_OURS, &(struct repo_io){-1, fileno(patch), NULL},
                             (const char *const[]){"diff", "--binary", "--full-index", "--no-ext-diff", "--no-textconv",
                                                   c->e.at.base, c->e.at.work, "--", NULL})
                  : err_errno(&c->ctx->err, errno, "make a file");
    if (r == 0 && lseek(fileno(patch), 0, SEEK_END) > 0 && lseek(fileno(patch), 0, SEEK_SET) == 0)
        r = repo_git(&c->e.repo, REPO_THEIRS, &(struct repo_io){fileno(patch), -1, NULL}, take);
    if (patch)
        (void)fclose(patch);
    return r;
}

/* "<mode> <object> <stage>\t<path>\n" each: what is in conflict here, by whose merge ever. */
static int env_unmerged(struct env_call *c, struct buf *ret_list)
{
    return REPO_ASK(&c->e.repo, REPO_THEIRS, ret_list, "ls-files", "--unmerged");
}

/* A merge that does not go through leaves nothing behind: the person decides with `rebase`. One of their own stays. */
static int env_apply_merge(struct env_call *c)
{
    AUTO_FREE char *message = mem_printf("Merge what was done in %s", c->e.name);
    AUTO_BUF struct buf before = BUF_INIT(UNMERGED_MAX), after = BUF_INIT(UNMERGED_MAX);
    struct repo *r = &c->e.repo;
    if (env_unmerged(c, &before) < 0)
        return -1;
    if (buf_len(&before))
        return err_set(&c->ctx->err, ERR_FAILED_PRECONDITION, "a merge here is not finished: 'git status' shows it");
    int done = c->o->squash
                   ? REPO_GIT(r, REPO_THEIRS, "merge", "--quiet", "--no-verify", "--squash", c->e.at.head)
                   : REPO_GIT(r, REPO_THEIRS, "merge", "--quiet", "--no-verify", "--ff", "-m", message, c->e.at.head);
    if (done == 0)
        return 0;
    AUTO_FREE char *said = mem_strdup(c->ctx->err.msg);
    if (env_unmerged(c, &after) < 0 || !buf_len(&after))
        return err_set(&c->ctx->err, ERR_ABORTED, "it does not apply to the files here: %.150s", said);
    struct str path = buf_str(&after), word;
    (void)str_split(&path, '\t', &word);
    (void)str_split(&path, '\n', &word);
    if (REPO_GIT(r, REPO_THEIRS, "reset", "--quiet", "--merge") < 0)
        return -1;
    context_hint(c->ctx, "'cove env rebase %s' brings it up to date first", c->e.name);
    return err_set(&c->ctx->err, ERR_ABORTED, "it does not apply to the files here: both changed %.*s",
                   STR_ARG_MAX(word, 150));
}

/* What was received last is what the person could look at: what is inside may have changed since. */
static int env_refresh_seen(struct env_call *c)
{
    char **at = c->o->patch ? &c->e.at.work : &c->e.at.head;
    if (!*at && env_look(&c->e) < 0)
        return -1;
    AUTO_FREE char *seen = mem_strdup(*at);
    if (env_refresh(&c->e) < 0)
        return -1;
    if (strcmp(seen, *at) == 0 || (c->o->patch && REPO_GIT(&c->e.repo, REPO_OURS, "diff", "--quiet", "--no-ext-diff",
                                                           "--no-textconv", seen, *at, "--") == 0))
        return 0;
    context_hint(c->ctx, "'cove env diff %s' shows what would be applied", c->e.name);
    return err_set(&c->ctx->err, ERR_ABORTED, "%s has changed since it was received last", c->e.name);
}

static int env_do_apply(struct env_call *c)
{
    int r = proposal_may_apply(&c->e) < 0 || env_refresh_seen(c) < 0 ? -1 : 0;
    if (r == 0 && !c->o->patch && !c->o->squash && strcmp(c->e.at.base, c->e.at.head) == 0)
        r = err_set(&c->ctx->err, ERR_FAILED_PRECONDITION,
                    "nothing was committed: 'cove env commit %s' does, and --patch applies it without", c->e.name);
    AUTO_FREE char *since = r < 0         ? NULL
                            : c->o->patch ? mem_strdup(c->e.at.base)
                                          : repo_accepted(&c->e.repo, c->e.at.base);
    if (r == 0)
        r = !since || review_changes(&c->e.repo, since, c->o->patch ? c->e.at.work : c->e.at.head, REVIEW_NOTHING,
                                     stderr) < 0
                ? -1
            : c->o->patch ? env_apply_patch(c)
                          : env_apply_merge(c);
    return env_say(c, r, "applied");
}

static int env_do_rebase(struct env_call *c)
{
    AUTO_FREE char *onto = repo_commit(&c->e.repo, REPO_THEIRS, c->o->from ? c->o->from : "HEAD");
    return env_finish(c, !onto || env_wake(&c->e) < 0 || env_rebase(&c->e, onto) < 0 ? -1 : provenance_receive(&c->e));
}

static int env_do_abort(struct env_call *c)
{
    AUTO_BUF struct buf refs = BUF_INIT(REFS_MAX);
    if (REPO_ASK(&c->e.repo, REPO_THEIRS, &refs, "for-each-ref", "--format=%(worktreepath)", c->e.head, c->e.base) < 0)
        return env_finish(c, -1);
    const struct str lines = repo_line(&refs);
    const ssize_t where = str_find_char(lines, '/');
    if (where >= 0)
        return env_finish(c, err_set(&c->ctx->err, ERR_FAILED_PRECONDITION,
                                     "the branch cove/%s is checked out at %.*s: switch to another one first",
                                     c->e.name, STR_ARG_MAX(str_sub(lines, (size_t)where), 150)));
    if (!c->e.id && !buf_len(&refs))
        return env_finish(c, env_look(&c->e));
    return env_finish(c, env_remove(&c->e, true));
}

/* The branch stays. What is not committed inside would go: it is kept as a commit, or the person is told. */
static int env_do_rm(struct env_call *c)
{
    int r = env_refresh(&c->e) < 0 ? -1 : 0;
    AUTO_BUF struct buf left = BUF_INIT(16 << 20);
    if (r == 0)
        r = REPO_ASK(&c->e.repo, REPO_OURS, &left, "diff", "--name-only", "--no-ext-diff", c->e.at.head, c->e.at.work,
                     "--");
    if (r == 0 && buf_len(&left)) {
        context_hint(c->ctx, "'cove env commit' keeps it, 'cove env abort' throws it away");
        r = err_set(&c->ctx->err, ERR_FAILED_PRECONDITION, "%s has changes that are not committed", c->e.name);
    }
    if (r == 0)
        r = env_remove(&c->e, strcmp(c->e.at.head, c->e.at.base) == 0);
    return env_say(c, r, "removed");
}

static int env_do_gc(struct env_call *c)
{
    int swept = repo_sweep(&c->e.repo), half = env_sweep(&c->e), kept = kept_drop(&c->e);
    if (half && !c->ctx->json)
        (void)printf("%d half-made sandbox%s ended\n", half, half == 1 ? "" : "es");
    if (kept && !c->ctx->json)
        (void)printf("%d kept cop%s dropped\n", kept, kept == 1 ? "y" : "ies");
    if (!c->ctx->json)
        (void)printf("%d left-over director%s removed\n", swept, swept == 1 ? "y" : "ies");
    return STATUS_OK;
}

static const struct {
    const char *word;
    int (*run)(struct env_call *c);
    bool has_name;
} env_forms[] = {
    {"create", env_do_create, true},   {"run", env_do_run, true},       {"shell", env_do_shell, true},
    {"status", env_do_status, true},   {"list", env_do_list, false},    {"log", env_do_log, true},
    {"diff", env_do_diff, true},       {"commit", env_do_commit, true}, {"compare", env_do_compare, true},
    {"propose", env_do_propose, true}, {"apply", env_do_apply, true},   {"rebase", env_do_rebase, true},
    {"abort", env_do_abort, true},     {"rm", env_do_rm, true},         {"gc", env_do_gc, false},
};

static int env_dispatch(struct context *ctx, const struct env_options *o)
{
    const char *what = context_operands(ctx) ? ctx->argv[ctx->argi] : "";
    char *const *rest = ctx->argv + ctx->argi + 1;
    for (size_t i = 0; i < ARRAY_SIZE(env_forms); i++) {
        if (!context_is_word(what, env_forms[i].word))
            continue;
        what = env_forms[i].word;
        struct env_call c = {.ctx = ctx, .o = o};
        if (env_forms[i].has_name && context_operands(ctx) < 2)
            return context_usage(ctx, "the environment's name is missing");
        c.rest = rest + env_forms[i].has_name;
        bool takes_more = strcmp(what, "run") == 0 || strcmp(what, "compare") == 0;
        if (*c.rest && !takes_more)
            return context_usage(ctx, "%s: one operand too many", *c.rest);
        int status = env_open(ctx, o->repo ? o->repo : ".", env_forms[i].has_name ? *rest : NULL, &c.e) < 0
                         ? context_fail(ctx, STATUS_COVE)
                         : env_forms[i].run(&c);
        env_fini(&c.e);
        return status;
    }
    AUTO_BUF struct buf words = BUF_INIT(512);
    for (size_t i = 0; i < ARRAY_SIZE(env_forms); i++)
        buf_printf(&words, "%s%s", i ? ", " : "", env_forms[i].word);
    return *what ? context_usage(ctx, "there is no action '%.64s': %.*s", what, STR_ARG(buf_str(&words)))
                 : context_usage(ctx, "the action is missing: %.*s", STR_ARG(buf_str(&words)));
}

static int env_read(struct context *ctx, struct env_options *o)
{
    const struct flag_into into[] = {{"repo", .text = &o->repo},       {"from", .text = &o->from},
                                     {"profile", .text = &o->profile}, {"template", .text = &o->template},
                                     {"message", .text = &o->message}, {"shallow", .on = &o->is_shallow},
                                     {"stat", .on = &o->stat},         {"patch", .on = &o->patch},
                                     {"squash", .on = &o->squash},     {"", .take = net_flags_take, .arg = &o->net}};
    if (context_read(ctx, into) < 0)
        return context_exit(ctx);
    if (context_operands(ctx) && context_check_form(ctx, ctx->argv[ctx->argi]) != STATUS_OK)
        return STATUS_USAGE;
    return o->patch + o->stat + o->squash > 1 ? context_usage(ctx, "--patch, --stat and --squash exclude each other")
                                              : env_dispatch(ctx, o);
}

static int cmd_env_run(struct context *ctx)
{
    struct env_options o = {0};
    int status = env_read(ctx, &o);
    net_flags_fini(&o.net);
    return status;
}

const struct command cmd_env = {
    .name = "env",
    .summary = "work on a copy of a Git repository, review it, apply it",
    .text = &text_env,
    .operands = "=create run shell status list log diff commit compare propose apply rebase abort rm gc",
    COMMAND_FLAGS(env_flags),
    .run = cmd_env_run,
};
