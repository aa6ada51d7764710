/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patches against problems in SWE-bench's format: a repository at a commit, a patch, a test command, tests that must
 * pass.
 *
 *  1. An image is a snapshot of a sandbox that holds the repository at its commit, without its history, set up. It is
 *     made once for all attempts, of this run and of later ones: its name is the digest of what it was made of. Each
 *     attempt is a fork of it, which has no network.
 *  2. Git applies the patch in there before anything of the patch has run: it takes no path that climbs out and writes
 *     through no link.
 *  3. Then what judges is put back as the commit has it: the files that the tests are in, those that the test patch
 *     touches, and what test runners read by themselves. Then comes the test patch.
 *  4. The verdict is made here, of what the tests print. A test that is said to have failed has failed, whatever else
 *     is said of it.
 */
#include "cli/eval/patch.h"
#include "base/mem.h"
#include "cli/eval/test_log.h"

enum { PATCH_TOLD_MAX = 50, PATCH_BAD = 91, PATCH_TESTS_BAD = 92 };

#define PATCH_DIR "/tmp/.cove-eval" /* patch.sh reads it there */

/* What test runners read by themselves, anywhere in the repository. */
static const char *const patch_judges[] = {
    ":(top,glob)**/conftest.py",     ":(top,glob)**/sitecustomize.py", ":(top,glob)**/usercustomize.py",
    ":(top,glob)**/*.pth",           ":(top,glob)**/pytest.ini",       ":(top,glob)**/.pytest.ini",
    ":(top,glob)**/tox.ini",         ":(top,glob)**/pytest.py",        ":(top,glob)**/pytest/**",
    ":(top,glob)**/_pytest/**",      ":(top,glob)**/unittest.py",      ":(top,glob)**/jest.config.*",
    ":(top,glob)**/vitest.config.*", ":(top,glob)**/.mocharc.*",
};

/* ---- problems ---- */

static const char *patch_test_cmd(const struct eval *e, const json_t *problem)
{
    const char *cmd = service_text(problem, "test_cmd");
    return *cmd ? cmd : e->test_cmd ? e->test_cmd : "";
}

/* SWE-bench has lists in a string, others as they are. NULL: it is none. */
static json_t *patch_tests(const json_t *problem, const char *name)
{
    json_t *list = json_object_get(problem, name);
    if (!list || json_is_null(list))
        return json_array();
    list = json_is_string(list) ? json_loads(json_string_value(list), 0, NULL) : json_incref(list);
    bool is_list = json_is_array(list);
    JSON_FOREACH (one, list)
        is_list = is_list && json_is_string(one) && json_string_length(one) > 0;
    if (is_list)
        return list;
    json_decref(list);
    return NULL;
}

/* The name of a repository, a commit: nothing that a program would take for an option, or that leads elsewhere. */
static bool patch_is_plain(const char *text)
{
    return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-")] == '\0' &&
           *text != '-' && *text != '/' && !strstr(text, "..");
}

static int patch_check(struct eval *e, const json_t *problem)
{
    const char *task = service_text(problem, "instance_id");
    AUTO_JSON json_t *must_change = patch_tests(problem, "FAIL_TO_PASS"),
                     *must_stay = patch_tests(problem, "PASS_TO_PASS");
    if (!must_change || !must_stay)
        return err_set(&e->ctx->err, ERR_INVALID_ARGUMENT, "%s: %s is not a list of names", task,
                       must_change ? "PASS_TO_PASS" : "FAIL_TO_PASS");
    if (!*patch_test_cmd(e, problem))
        return err_set(&e->ctx->err, ERR_INVALID_ARGUMENT, "%s: it has no \"test_cmd\", and there is no --test-cmd",
                       task);
    if (!patch_is_plain(service_text(problem, "repo")) || !patch_is_plain(service_text(problem, "base_commit")))
        return err_set(&e->ctx->err, ERR_INVALID_ARGUMENT, "%s: its repo or base_commit is not a valid name", task);
    if (*patch_workdir(problem) != '/')
        return err_set(&e->ctx->err, ERR_INVALID_ARGUMENT, "%s: workdir is not an absolute path", task);
    if (!e->given && !*service_text(problem, "patch"))
        return err_set(&e->ctx->err, ERR_INVALID_ARGUMENT, "%s: it has no patch of its own: give --samples", task);
    return 0;
}

/* ---- an attempt ---- */

/* How many of these are wanted and not there; the first of them in `ret_missing`. */
static size_t patch_count(const json_t *wanted, const json_t *results, json_t *ret_missing)
{
    size_t n = 0;
    JSON_FOREACH (name, wanted) {
        if (json_is_true(json_object_getn(results, json_string_value(name), json_string_length(name))))
            continue;
        if (n++ < PATCH_TOLD_MAX)
            (void)json_array_append(ret_missing, name);
    }
    return n;
}

static int patch_put(struct patch_box *b, const char *name, struct str text)
{
    AUTO_FREE char *target = service_target(b->id, "/files?path=" PATCH_DIR "/%s&user=root", name);
    return service_put(b->s, target, text);
}

static json_t *patch_verdict(const struct patch_box *b, const json_t *problem, uint32_t code, bool was_dropped,
                             const json_t *put_back)
{
    AUTO_JSON json_t *must_change = patch_tests(problem, "FAIL_TO_PASS"),
                     *must_stay = patch_tests(problem, "PASS_TO_PASS"), *results = json_object(),
                     *missing = json_array(), *broken = json_array();
    char why[PATCH_WHY_MAX] = "passed";
    test_log_read(results, buf_str(&b->out));
    test_log_read(results, buf_str(&b->err));
    size_t n_change = json_array_size(must_change), n_stay = json_array_size(must_stay);
    size_t no_change = patch_count(must_change, results, missing), no_stay = patch_count(must_stay, results, broken);
    bool has_passed = b->is_late || was_dropped ? false : n_change + n_stay ? !no_change && !no_stay : code == 0;
    if (b->is_late || was_dropped)
        (void)snprintf(why, sizeof(why), b->is_late ? "timed out" : "it printed more than %d MiB",
                       PATCH_OUTPUT_MAX >> 20);
    else if (!has_passed && !(n_change + n_stay))
        (void)snprintf(why, sizeof(why), "the tests ended with %u", code);
    else if (!has_passed)
        (void)snprintf(why, sizeof(why), "%zu of %zu that must begin to pass do not, %zu of %zu that passed do not",
                       no_change, n_change, no_stay, n_stay);
    return json_pack("{s:b,s:s,s:b,s:i,s:{s:O,s:O},s:O}", "passed", has_passed, "result", why, "applied", 1,
                     "exit_code", (int)code, "failed", "FAIL_TO_PASS", missing, "PASS_TO_PASS", broken, "put_back",
                     put_back);
}

static json_t *patch_refuse(struct patch_box *b, uint32_t code)
{
    char why[PATCH_WHY_MAX];
    if (code == PATCH_BAD) {
        patch_why(b, "the patch does not apply", why);
        return json_pack("{s:b,s:s,s:b}", "passed", 0, "result", why, "applied", 0);
    }
    patch_why(b, code == PATCH_TESTS_BAD ? "the test patch does not apply" : "git failed in the sandbox", why);
    return json_pack("{s:s}", "broken", why);
}

/* ":(top,literal)tests/test_a.py" of each test whose name begins with a file, and what judges anyway. */
static const char **patch_specs(struct eval *e, const json_t *problem, size_t *ret_n)
{
    static const char *const lists[] = {"FAIL_TO_PASS", "PASS_TO_PASS"};
    AUTO_JSON json_t *files = json_object();
    size_t i, n = 0;
    for (size_t l = 0; l < ARRAY_SIZE(lists); l++) {
        AUTO_JSON json_t *list = patch_tests(problem, lists[l]);
        JSON_FOREACH (name, list) {
            AUTO_FREE char *text = mem_strdup(json_string_value(name));
            char *end = strstr(text, "::");
            if (end)
                *end = '\0';
            if (end && *text)
                (void)json_object_set_new(files, text, json_true());
        }
    }
    const char **specs =
        arena_alloc(&e->arena, (json_object_size(files) + ARRAY_SIZE(patch_judges) + 1) * sizeof(*specs));
    specs[n++] = patch_workdir(problem);
    for (i = 0; i < ARRAY_SIZE(patch_judges); i++)
        specs[n++] = patch_judges[i];
    JSON_FOREACH_MEMBER (file, unused, files)
        specs[n++] = arena_printf(&e->arena, ":(top,literal)%s", file);
    *ret_n = n;
    return specs;
}

static json_t *patch_attempt(struct patch_box *b, const struct eval_sample *sample)
{
    const json_t *problem = sample->problem;
    AUTO_JSON json_t *put_back = json_array();
    struct str rest, line;
    bool was_dropped = false;
    uint32_t code = 0;
    size_t n;
    if (patch_put(b, "patch", str_of(sample->answer)) < 0 ||
        patch_put(b, "tests", str_of(service_text(problem, "test_patch"))) < 0)
        return NULL;
    const char **specs = patch_specs(b->e, problem, &n);
    if (patch_sh(b, "apply", specs, n, -1, &code) < 0)
        return NULL;
    if (code)
        return patch_refuse(b, code);
    rest = buf_str(&b->out);
    while (rest.n && str_split(&rest, '\n', &line)) {
        if (line.n && json_array_size(put_back) < PATCH_TOLD_MAX && str_is_utf8(line))
            (void)json_array_append_new(put_back, json_stringn(line.p, line.n));
    }
    char *const argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)patch_test_cmd(b->e, problem), NULL};
    if (patch_exec(b, argv, patch_workdir(problem), -1, b->e->timeout_s, &code, &was_dropped) < 0 && !b->is_late)
        return NULL;
    return patch_verdict(b, problem, code, was_dropped, put_back);
}

static json_t *patch_judge(struct eval *e, struct service *s, const struct eval_sample *sample)
{
    struct patch_box b = {.e = e, .s = s};
    char name[48];
    json_t *told = NULL;
    if (!*sample->answer)
        return json_pack("{s:b,s:s,s:b}", "passed", 0, "result", "the patch is empty", "applied", 0);
    patch_image_name(e, sample->problem, name);
    if (patch_box_open(&b, name, false) == 0)
        told = patch_attempt(&b, sample);
    if (told && b.id)
        (void)json_object_set_new(told, "sandbox", json_string(b.id));
    patch_box_close(&b);
    return told;
}

static const char *const patch_members[] = {"instance_id"};

const struct eval_kind eval_patch = {
    .name = "patch",
    .members = patch_members,
    .n_members = ARRAY_SIZE(patch_members),
    .answer = "model_patch",
    .own = "patch",
    .timeout_s = 1800,
    .timeout_max_s = 86400,
    .missing =
        "--problems is missing: JSON Lines with instance_id, repo, base_commit, test_patch, test_cmd, FAIL_TO_PASS and "
        "PASS_TO_PASS, as SWE-bench has them",
    .check = patch_check,
    .prepare = patch_prepare,
    .judge = patch_judge,
};
