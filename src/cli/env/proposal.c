/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/env/proposal.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "cli/agent/receipt.h"
#include "cli/env/provenance.h"
#include "cli/env/review.h"
#include "cli/env/settings.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"

#include <unistd.h>

enum {
    FORK_MS = 3600000,
    PROPOSAL_OUTPUT_MAX = 1 << 20,
    KEPT_MAX = 2000,
    PROPOSAL_TOLD_MAX = 200,
    PROPOSAL_SHOWN_MAX = 20,
    PROPOSAL_TICK_MS = 1000,
    RISKS_MAX = 256 * 1024,
    PROPOSAL_LINE_MAX_BYTES = 64 * 1024
};

/* ---- checks ---- */

static const char script_committed[] = "cd \"$1\" && git reset -q --hard \"$2\" && git clean -fdq";

static json_t *proposal_tail(const struct buf *output)
{
    AUTO_BUF struct buf text = BUF_INIT(8 * KEPT_MAX);
    struct str all = buf_str(output);
    terminal_escape(&text, str_sub(all, all.n - MIN(all.n, (size_t)KEPT_MAX)));
    return json_stringn(buf_len(&text) ? buf_data(&text) : "", buf_len(&text));
}

static int proposal_check(struct env *fork, const char *command, json_t *checks)
{
    AUTO_BUF struct buf out = BUF_INIT(PROPOSAL_OUTPUT_MAX);
    char *const argv[] = {(char *)"sh",    (char *)"-c",    (char *)"exec 2>&1; eval \"$1\"",
                          (char *)"check", (char *)command, NULL};
    const struct exec_request request = {.id = fork->id, .argv = argv, .cwd = fork->repo.top, .tag = "check"};
    const struct exec_io io = {-1, -1, -1, &out, &out, .tick_ms = PROPOSAL_TICK_MS};
    struct exec_result result;
    const usec_t began = clock_mono();
    terminal_line(stderr, "cove env: check: %s", command);
    if (env_exec(fork, &request, &io, &result) < 0)
        return -1;
    if (result.interrupted)
        return err_set(&fork->ctx->err, ERR_CANCELED, "interrupted");
    json_t *one = json_pack("{s:s, s:i, s:I, s:o, s:s}", "command", command, result.signaled ? "signal" : "exit_code",
                            (int)result.code, "duration_ms", (json_int_t)((clock_mono() - began) / USEC_PER_MS),
                            "output", proposal_tail(&out), "grade", "claimed");
    return json_array_append_new(checks, one);
}

static int proposal_run_checks(struct env *e, const char *head, const json_t *commands, json_t **ret_checks)
{
    AUTO_JSON json_t *body = json_pack("{s:i, s:i}", "count", 1, "timeout_ms", FORK_MS), *answer = NULL;
    AUTO_JSON json_t *closed = json_pack("{s:s, s:[]}", "default", "deny", "rules"), *checks = json_array();
    AUTO_FREE char *target = service_target(e->id, "/fork");
    struct env fork = *e;
    fork.at = (struct env_commits){NULL, NULL, NULL};
    *ret_checks = json_incref(checks);
    if (!json_array_size(commands))
        return 0;
    AUTO(service_close) struct service *s = service_open(e->ctx);
    if (!s || service_call(s, "POST", target, body, "making a fork", &answer) < 0)
        return -1;
    const char *id = json_string_value(
        json_object_get(json_object_get(json_array_get(json_object_get(answer, "forks"), 0), "sandbox"), "id"));
    if (!id || !id_is_sandbox(str_of(id)))
        return err_set(&e->ctx->err, ERR_UNKNOWN, "no fork could be made for the checks");
    fork.id = (char *)id;
    AUTO_FREE char *network = service_target(id, "/network");
    char *const words[] = {e->repo.top, (char *)head, NULL};
    int r = service_call(s, "PUT", network, closed, NULL, NULL) < 0 ||
                    env_script(&fork, script_committed, words, -1, -1, NULL) < 0
                ? -1
                : 0;
    JSON_FOREACH (one, commands)
        if (r == 0)
            r = proposal_check(&fork, json_string_value(one), checks);
    struct err why = e->ctx->err;
    int ignored UNUSED = service_remove(s, id, NULL);
    e->ctx->err = why;
    return r;
}

/* ---- all of it ---- */

/* n: how many there are, if that is more than stand in the text. A subject may be anything. */
static json_t *proposal_lines(const char *text, size_t n)
{
    json_t *lines = json_array();
    struct str rest = str_of(text), line;
    size_t seen = 0;
    for (; str_split(&rest, '\n', &line) && line.n; seen++) {
        AUTO_BUF struct buf shown = BUF_INIT(PROPOSAL_LINE_MAX_BYTES);
        terminal_escape(&shown, str_trim(line));
        if (seen < PROPOSAL_TOLD_MAX && !buf_error(&shown))
            (void)json_array_append_new(lines, json_stringn(buf_data(&shown), buf_len(&shown)));
    }
    n = MAX(n, seen) - json_array_size(lines);
    if (n)
        (void)json_array_append_new(lines, json_sprintf("and %zu more", n));
    return lines;
}

/* Those that are somebody's, and not more than a note is good for; *left_out more. */
static json_t *proposal_commands(const json_t *commands, json_int_t *left_out)
{
    json_t *kept = json_array();
    JSON_FOREACH (one, commands) {
        const char *tag = json_string_value(json_object_get(one, "tag"));
        if (tag && strcmp(tag, ENV_TAG) == 0)
            continue;
        if (json_array_size(kept) < PROPOSAL_TOLD_MAX)
            (void)json_array_append(kept, (json_t *)one);
        else
            ++*left_out;
    }
    return kept;
}

static int proposal_risks(struct env *e, const char *base, const char *head, json_t **ret_risks)
{
    AUTO_FREE char *text = mem_alloc(RISKS_MAX);
    FILE *out = fmemopen(text, RISKS_MAX - 1, "w");
    if (!out)
        return err_errno(&e->ctx->err, errno, "look at the changes");
    int r = review_changes(&e->repo, base, head, REVIEW_NOTHING, out);
    (void)fclose(out);
    if (r >= 0)
        *ret_risks = proposal_lines(text, (size_t)r);
    return r < 0 ? -1 : 0;
}

int proposal_make(struct env *e, const char *profile, const char *message, json_t **ret_proposal)
{
    AUTO_FREE char *began = repo_commit(&e->repo, REPO_THEIRS, e->base),
                   *head = repo_commit(&e->repo, REPO_THEIRS, e->head);
    AUTO_FREE char *base = began ? repo_accepted(&e->repo, began) : NULL;
    AUTO_FREE char *range = mem_printf("%s..%s", base ? base : "", head ? head : "");
    AUTO_FREE char *ref = mem_printf("refs/cove/proposal/%s", e->name);
    AUTO_BUF struct buf log = BUF_INIT(1 << 20), stat = BUF_INIT(1 << 20);
    AUTO_JSON json_t *spec = json_object(), *setup = NULL, *wanted = NULL, *checks = NULL, *risks = NULL,
                     *receipt = NULL;
    AUTO_JSON json_t *policy = NULL, *commits = NULL, *files = NULL, *commands = NULL;
    char now[CLOCK_TEXT_MAX];
    if (!base || !head)
        return -1;
    if (strcmp(began, head) == 0)
        return err_set(&e->ctx->err, ERR_FAILED_PRECONDITION, "nothing was committed: 'cove env commit %s' does",
                       e->name);
    if (settings_read(&e->repo, base, profile, spec, &setup, &wanted) < 0 ||
        proposal_risks(e, base, head, &risks) < 0 ||
        REPO_ASK(&e->repo, REPO_OURS, &log, "log", "--format=%H %s", "--no-show-signature", range, "--") < 0 ||
        REPO_ASK(&e->repo, REPO_OURS, &stat, "diff", "--stat=120", "--no-ext-diff", "--no-textconv", base, head, "--") <
            0 ||
        proposal_run_checks(e, head, wanted, &checks) < 0 || receipt_collect(e->ctx, e->id, 1, NULL, &receipt) < 0 ||
        !(policy = provenance_policy(e)))
        return -1;
    AUTO_FREE char *log_text = mem_strndup(buf_data(&log), buf_len(&log)),
                   *stat_text = mem_strndup(buf_data(&stat), buf_len(&stat));
    commits = proposal_lines(log_text, 0);
    files = proposal_lines(stat_text, 0);
    json_int_t left_out = json_integer_value(json_object_get(receipt, "left_out"));
    commands = proposal_commands(json_object_get(receipt, "commands"), &left_out);
    clock_format(clock_real(), 0, now);
    AUTO_JSON json_t *p = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s?, s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:O?, s:O?, s:I}", "kind",
        "proposal", "environment", e->name, "sandbox", e->id, "base", base, "head", head, "at", now, "message", message,
        "commits", commits, "files", files, "risks", risks, "checks", checks, "commands", commands, "policy", policy,
        "reached", json_object_get(receipt, "reached"), "refused", json_object_get(receipt, "refused"), "seq",
        json_object_get(receipt, "seq"), "hash", json_object_get(receipt, "hash"), "left_out", left_out);
    if (!p)
        return err_set(&e->ctx->err, ERR_INVALID_ARGUMENT, "-m must be UTF-8");
    if (provenance_append(e, head, p) < 0 || REPO_GIT(&e->repo, REPO_THEIRS, "update-ref", ref, head) < 0)
        return -1;
    *ret_proposal = TAKE_PTR(p);
    return 0;
}

static void proposal_print_list(const json_t *p, const char *key, const char *title, const char *none)
{
    const json_t *all = json_object_get(p, key);
    size_t n = 0;
    if (json_is_array(all) ? json_array_size(all) : json_object_size(all))
        (void)printf("%s\n", title);
    else if (none)
        (void)printf("%s\n", none);
    JSON_FOREACH (one, all)
        if (json_is_string(one))
            terminal_line(stdout, "  %s", json_string_value(one));
    JSON_FOREACH_MEMBER (host, one, all) {
        if (n++ == PROPOSAL_SHOWN_MAX)
            (void)printf("  and %zu more\n", json_object_size(all) - PROPOSAL_SHOWN_MAX);
        if (n <= PROPOSAL_SHOWN_MAX)
            terminal_line(stdout, "  %s, %lld times, sent %lld bytes", host,
                          (long long)json_integer_value(json_object_get(one, "count")),
                          (long long)json_integer_value(json_object_get(one, "sent")));
    }
}

/* Of a check or a command. */
static void proposal_print_run(const json_t *one, const char *text)
{
    const json_t *sig = json_object_get(one, "signal"), *code = sig ? sig : json_object_get(one, "exit_code");
    const char *grade = json_string_value(json_object_get(one, "grade"));
    const size_t n = json_object_size(json_object_get(one, "wrote"));
    AUTO_BUF struct buf end = BUF_INIT(256);
    if (code)
        buf_printf(&end, ": %s %lld, %.1f s", sig ? "signal" : "exit code", (long long)json_integer_value(code),
                   (double)json_integer_value(json_object_get(one, "duration_ms")) / 1000);
    if (n)
        buf_printf(&end, ", %zu file%s written", n, n == 1 ? "" : "s");
    terminal_line(stdout, "  %.100s%.*s (%s)", text, STR_ARG(buf_str(&end)), grade ? grade : "it did not end");
}

void proposal_print(const json_t *p)
{
    const json_t *checks = json_object_get(p, "checks"), *commands = json_object_get(p, "commands");
    const char *message = json_string_value(json_object_get(p, "message"));
    if (message)
        print_line(message);
    proposal_print_list(p, "commits", "Commits", NULL);
    proposal_print_list(p, "risks", "Look first at",
                        "No file that is run, no link, no hidden character among the changes");
    (void)puts(json_array_size(checks) ? "Checks, in a fork without network"
                                       : "No checks: .cove/env.yaml of the commit it began with names none");
    JSON_FOREACH (one, checks)
        proposal_print_run(one, json_string_value(json_object_get(one, "command")));
    (void)puts("Commands");
    JSON_FOREACH_AT (i, one, commands) {
        AUTO_BUF struct buf line = BUF_INIT(64 * 1024);
        print_words(&line, json_object_get(one, "argv"), 60);
        buf_append_char(&line, '\0');
        if (i < PROPOSAL_SHOWN_MAX && !buf_error(&line))
            proposal_print_run(one, buf_data(&line));
    }
    const json_int_t more =
        json_integer_value(json_object_get(p, "left_out")) + (json_int_t)json_array_size(commands) - PROPOSAL_SHOWN_MAX;
    if (more > 0)
        (void)printf("  and %lld more: cove log %s\n", (long long)more, service_text(p, "sandbox"));
    proposal_print_list(p, "reached", "Reached", NULL);
    proposal_print_list(p, "refused", "Refused", NULL);
    proposal_print_list(p, "files", "Changes", NULL);
}

int proposal_may_apply(struct env *e)
{
    AUTO_JSON json_t *info = NULL;
    AUTO(service_close) struct service *s = service_open(e->ctx);
    if (!s || service_call(s, "GET", "/cove/v1/info", NULL, NULL, &info) < 0)
        return -1;
    const char *scope = json_string_value(json_object_get(info, "scope"));
    if (scope && (strcmp(scope, "approve") == 0 || strcmp(scope, "admin") == 0))
        return 0;
    context_hint(e->ctx, "'cove key create --scope approve' makes a reviewer's key");
    return err_set(&e->ctx->err, ERR_PERMISSION_DENIED, "this key's scope is '%.20s': to apply is for a reviewer",
                   scope ? scope : "?");
}
