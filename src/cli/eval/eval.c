/* SPDX-License-Identifier: Apache-2.0 */
/*
 *  1. What is to be done is numbered. The numbers go through a pipe, from which the workers take them: processes of
 *     ours with a connection each. What became of one comes back through another pipe as a line, one worker at a time,
 *     and is appended to the file of results at once.
 *  2. A sample whose line is in that file already, with the same digest, is not judged again: so a run that was cut
 *     short is gone on with.
 *  3. What Cove can't do (no template, no room) fails no sample: it ends the run. What is wrong with a problem fails
 *     none either, and does not end it: these samples are counted by themselves and have no line, so the next run tries
 *     again.
 */
#include "cli/eval/eval.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/print.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

enum { EVAL_FILE_MAX = 1 << 30, SAMPLES_MAX = 1000000, EVAL_LINE_MAX_BYTES = 64 << 20 };

/* ---- files ---- */

static int eval_read(struct context *ctx, const char *path, struct buf *b)
{
    gzFile f = gzopen(path, "rbe"); /* reads what isn't compressed, too */
    int n = 0;
    if (!f)
        return err_errno(&ctx->err, errno ? errno : ENOMEM, "read %s", path);
    buf_init(b, EVAL_FILE_MAX);
    do {
        char *to = buf_reserve(b, 1 << 16);
        n = to ? gzread(f, to, 1 << 16) : -1;
        if (n > 0)
            buf_commit(b, (size_t)n);
    } while (n > 0);
    (void)gzclose(f);
    return n < 0 ? err_set(&ctx->err, ERR_INVALID_ARGUMENT, "%s is broken, or larger than 1 GiB", path) : 0;
}

void eval_digest(struct str bytes, char ret_digest[static 33])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    (void)SHA256((const unsigned char *)bytes.p, bytes.n, digest);
    str_hex(digest, 16, ret_digest);
}

/* Each line an object that has these strings; null for the last one counts as empty. */
static int eval_lines(struct context *ctx, const char *path, const char *const *names, size_t n_names, json_t **ret_all)
{
    AUTO_BUF struct buf b = BUF_INIT(0);
    AUTO_JSON json_t *all = json_array();
    struct str rest, line;
    size_t number = 0;
    if (eval_read(ctx, path, &b) < 0)
        return -1;
    rest = buf_str(&b);
    while (rest.n && str_split(&rest, '\n', &line)) {
        number++;
        if (!str_trim(line).n)
            continue;
        json_t *one = json_loadb(line.p, line.n, JSON_REJECT_DUPLICATES, NULL), *value;
        size_t i = 0;
        while (i < n_names && (value = json_object_get(one, names[i])) &&
               (json_is_string(value) || (i == n_names - 1 && json_is_null(value))))
            i++;
        if (!json_is_object(one) || i < n_names || json_array_size(all) == SAMPLES_MAX) {
            bool lacks = json_is_object(one) && i < n_names;
            json_decref(one);
            return err_set(&ctx->err, ERR_INVALID_ARGUMENT,
                           lacks ? "%s:%zu: it has no \"%s\"" : "%s:%zu: this is not a JSON object%s", path, number,
                           lacks ? names[i] : "");
        }
        (void)json_array_append_new(all, one);
    }
    *ret_all = TAKE_PTR(all);
    return 0;
}

static int eval_index(struct eval *e)
{
    JSON_FOREACH_AT (i, one, e->problems) {
        const char *task = service_text(one, e->kind->members[0]);
        if (i >= e->n)
            break;
        if (map_put(&e->by_task, str_of(task), one))
            return err_set(&e->ctx->err, ERR_INVALID_ARGUMENT, "%s: it has %s twice", e->problems_path, task);
        if (e->kind->check && e->kind->check(e, one) < 0)
            return -1;
    }
    return 0;
}

static int eval_load(struct eval *e)
{
    const char *const of_sample[] = {e->kind->members[0], e->kind->answer};
    struct context *ctx = e->ctx;
    if (eval_lines(ctx, e->problems_path, e->kind->members, e->kind->n_members, &e->problems) < 0 ||
        (e->samples_path && eval_lines(ctx, e->samples_path, of_sample, ARRAY_SIZE(of_sample), &e->given) < 0) ||
        eval_index(e) < 0)
        return -1;
    const json_t *from = e->given ? e->given : e->problems;
    e->samples = arena_alloc(&e->arena, (json_array_size(from) + 1) * sizeof(*e->samples));
    JSON_FOREACH (one, from) {
        struct eval_sample *s = &e->samples[e->n_samples];
        *s = (struct eval_sample){.task = service_text(one, e->kind->members[0])};
        s->answer = service_text(one, e->given ? e->kind->answer : e->kind->own);
        s->problem = map_get(&e->by_task, str_of(s->task));
        if (!s->problem && e->n < UINT32_MAX)
            continue; /* beyond the first n */
        if (!s->problem)
            return err_set(&ctx->err, ERR_NOT_FOUND, "%s: there is no problem %s", e->samples_path, s->task);
        AUTO_FREE char *problem = json_dumps(s->problem, JSON_COMPACT | JSON_SORT_KEYS);
        AUTO_FREE char *whole = mem_printf("%s\n%s", problem, s->answer);
        eval_digest(str_of(whole), s->digest);
        e->n_samples++;
    }
    return 0;
}

static void eval_take(struct eval *e, size_t i, const json_t *told)
{
    e->samples[i].is_done = true;
    e->samples[i].has_passed = json_is_true(json_object_get(told, "passed"));
    e->n_done++;
}

/* What an earlier run has found. A last line that was cut short counts as none. */
static int eval_resume(struct eval *e)
{
    AUTO_BUF struct buf b = BUF_INIT(0);
    struct context *ctx = e->ctx;
    struct str rest, line;
    e->results = open(e->results_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (e->results < 0)
        return err_errno(&ctx->err, errno, "write %s", e->results_path);
    if (eval_read(ctx, e->results_path, &b) < 0)
        return -1;
    rest = buf_str(&b);
    if (rest.n && rest.p && rest.p[rest.n - 1] != '\n')
        (void)!write(e->results, "\n", 1);
    while (rest.n && str_split(&rest, '\n', &line)) {
        AUTO_JSON json_t *one = json_loadb(line.p, line.n, 0, NULL);
        json_int_t i = json_integer_value(json_object_get(one, "sample"));
        if (one && i >= 0 && (size_t)i < e->n_samples && !e->samples[i].is_done &&
            strcmp(e->samples[i].digest, service_text(one, "digest")) == 0)
            eval_take(e, (size_t)i, one);
    }
    return 0;
}

/* ---- workers ---- */

/* One at a time: a pipe takes only short lines in one piece. The lock goes with whoever dies. */
static void eval_tell(struct eval *e, int fd, json_t *line)
{
    AUTO_FREE char *text = line ? json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    AUTO_FREE char *whole = mem_printf("%s\n", text ? text : "{}");
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)fcntl(e->results, F_SETLKW, &lock);
    for (size_t done = 0, n = strlen(whole); done < n;) {
        ssize_t some = write(fd, whole + done, n - done);
        if (some < 0 && errno != EINTR)
            break;
        done += some > 0 ? (size_t)some : 0;
    }
    lock.l_type = F_UNLCK;
    (void)fcntl(e->results, F_SETLK, &lock);
    json_decref(line);
}

static _Noreturn void eval_work(struct eval *e, const struct eval_pass *pass, int numbers, int told)
{
    AUTO(service_close) struct service *s = service_open(e->ctx);
    uint32_t i;
    while (s && read(numbers, &i, sizeof(i)) == sizeof(i)) {
        json_t *line = pass->work(e, s, i);
        if (!line)
            break;
        (void)json_object_set_new(line, "sample", json_integer(i));
        eval_tell(e, told, line);
    }
    if (e->ctx->err.msg[0])
        eval_tell(e, told, json_pack("{s:s}", "error", e->ctx->err.msg));
    _exit(0);
}

/* Gives the numbers out; a child of its own, as the pipe may be full. */
static _Noreturn void eval_give(const struct eval *e, const struct eval_pass *pass, int numbers)
{
    for (uint32_t i = 0; i < pass->n; i++)
        if (!pass->skip(e, i) && write(numbers, &i, sizeof(i)) < 0)
            break;
    _exit(0);
}

static int eval_note(struct eval *e, const struct eval_pass *pass, struct str line)
{
    AUTO_JSON json_t *one = json_loadb(line.p, line.n, 0, NULL);
    json_int_t i = json_integer_value(json_object_get(one, "sample"));
    const char *error = json_string_value(json_object_get(one, "error"));
    if (error)
        return err_set(&e->ctx->err, ERR_FAILED_PRECONDITION, "%s", error);
    if (!one || i < 0 || (size_t)i >= pass->n || pass->skip(e, (size_t)i))
        return err_set(&e->ctx->err, ERR_INTERNAL, "a worker sent an invalid message");
    return pass->note(e, (size_t)i, one, line);
}

static int eval_collect(struct eval *e, const struct eval_pass *pass, int told, size_t left)
{
    AUTO_BUF struct buf b = BUF_INIT(EVAL_LINE_MAX_BYTES);
    for (;;) {
        char *to = buf_reserve(&b, 65536);
        ssize_t n = to ? read(told, to, 65536) : -1, end;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return left ? err_set(&e->ctx->err, ERR_INTERNAL, "the workers are gone") : 0;
        buf_commit(&b, (size_t)n);
        while ((end = str_find_char(buf_str(&b), '\n')) >= 0) {
            if (eval_note(e, pass, str_n(buf_data(&b), (size_t)end)) < 0)
                return -1;
            buf_consume(&b, (size_t)end + 1);
            left -= left > 0;
        }
    }
}

int eval_each(struct eval *e, const struct eval_pass *pass)
{
    int numbers[2], told[2];
    size_t left = 0, started = 0;
    for (size_t i = 0; i < pass->n; i++)
        left += !pass->skip(e, i);
    if (!left)
        return 0;
    if (pipe2(numbers, O_CLOEXEC) < 0 || pipe2(told, O_CLOEXEC) < 0)
        return err_errno(&e->ctx->err, errno, "make a pipe");
    size_t jobs = MIN(e->jobs, left);
    for (; started <= jobs; started++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid)
            continue;
        (void)close(told[0]);
        (void)close(numbers[started == jobs ? 0 : 1]);
        if (started == jobs)
            eval_give(e, pass, numbers[1]);
        eval_work(e, pass, numbers[0], told[1]);
    }
    (void)close(numbers[0]);
    (void)close(numbers[1]);
    (void)close(told[1]);
    int r = started <= jobs ? err_errno(&e->ctx->err, errno, "start workers") : eval_collect(e, pass, told[0], left);
    (void)close(told[0]); /* who still works ends at its next word */
    while (started-- > 0)
        (void)!wait(NULL);
    return r;
}

/* ---- samples ---- */

static bool eval_skip(const struct eval *e, size_t i)
{
    return e->samples[i].is_done || e->samples[i].broken;
}

static json_t *eval_judge(struct eval *e, struct service *s, size_t i)
{
    json_t *told = e->kind->judge(e, s, &e->samples[i]);
    if (told) {
        (void)json_object_set_new(told, e->kind->members[0], json_string(e->samples[i].task));
        (void)json_object_set_new(told, "digest", json_string(e->samples[i].digest));
    }
    return told;
}

static int eval_judged(struct eval *e, size_t i, const json_t *told, struct str line)
{
    const char *broken = json_string_value(json_object_get(told, "broken"));
    AUTO_FREE char *whole = mem_printf("%.*s\n", STR_ARG(line));
    if (broken)
        e->samples[i].broken = arena_strdup(&e->arena, broken);
    else if (write(e->results, whole, strlen(whole)) < 0)
        return err_errno(&e->ctx->err, errno, "write %s", e->results_path);
    else
        eval_take(e, i, told);
    if (isatty(STDERR_FILENO) && !e->ctx->json)
        (void)fprintf(stderr, "\r%zu of %zu", e->n_done, e->n_samples);
    return 0;
}

/* ---- what came of it ---- */

/* Of n samples c passed: how likely is it that one of k does? Unbiased, as HumanEval's authors define it. */
static double eval_pass_at(size_t n, size_t c, size_t k)
{
    double none = 1;
    if (n - c < k)
        return 1;
    for (size_t i = n - c + 1; i <= n; i++)
        none *= 1 - (double)k / (double)i;
    return 1 - none;
}

static void eval_report(struct eval *e)
{
    static const size_t ks[] = {1, 10, 100};
    double sums[ARRAY_SIZE(ks)] = {0};
    size_t tasks = 0, least = SIZE_MAX, passed = 0, it;
    json_t *counts AUTO_JSON = json_object(), *one;
    AUTO_JSON json_t *answer = json_object();
    for (size_t i = 0; i < e->n_samples; i++) {
        one = json_setdefault(counts, e->samples[i].task, json_pack("[i,i]", 0, 0));
        for (it = 0; it <= (e->samples[i].has_passed ? 1 : 0); it++)
            (void)json_array_set_new(one, it, json_integer(json_integer_value(json_array_get(one, it)) + 1));
        passed += e->samples[i].has_passed;
        e->n_broken += e->samples[i].broken != NULL;
    }
    JSON_FOREACH_MEMBER (task, count, counts) {
        size_t n = (size_t)json_integer_value(json_array_get(count, 0)),
               c = (size_t)json_integer_value(json_array_get(count, 1));
        tasks++;
        least = MIN(least, n);
        for (size_t k = 0; k < ARRAY_SIZE(ks); k++)
            sums[k] += eval_pass_at(n, c, ks[k]);
    }
    (void)json_object_set_new(answer, "problems", json_integer((json_int_t)tasks));
    (void)json_object_set_new(answer, "samples", json_integer((json_int_t)e->n_samples));
    (void)json_object_set_new(answer, "passed", json_integer((json_int_t)passed));
    (void)json_object_set_new(answer, "broken", json_integer((json_int_t)e->n_broken));
    for (size_t k = 0; k < ARRAY_SIZE(ks) && tasks && ks[k] <= least; k++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "pass@%zu", ks[k]);
        (void)json_object_set_new(answer, key, json_real(sums[k] / (double)tasks));
        if (!e->ctx->json)
            (void)printf("%-9s %.4f\n", key, sums[k] / (double)tasks);
    }
    (void)json_object_set_new(answer, "results", json_string(e->results_path));
    if (e->ctx->json)
        print_json(answer);
    else
        (void)printf("%zu of %zu samples passed, of %zu problems; each by itself: %s\n", passed, e->n_samples, tasks,
                     e->results_path);
}

/* The first of the samples that could not be judged stands for all. */
static int eval_count_broken(struct eval *e)
{
    for (size_t i = 0; i < e->n_samples; i++) {
        if (e->samples[i].broken)
            return err_set(&e->ctx->err, ERR_FAILED_PRECONDITION, "%zu samples could not be judged; %s: %s",
                           e->n_broken, e->samples[i].task, e->samples[i].broken);
    }
    return 0;
}

int eval_start(struct eval *e)
{
    static const struct eval_pass pass = {.skip = eval_skip, .work = eval_judge, .note = eval_judged};
    struct eval_pass all = pass;
    int r = -1;
    e->results_path = e->output_path ? mem_strdup(e->output_path)
                                     : mem_printf("%s_results.jsonl", e->samples_path ? e->samples_path : e->kind->own);
    if (eval_load(e) == 0 && eval_resume(e) == 0 &&
        (e->n_done == e->n_samples || !e->kind->prepare || e->kind->prepare(e) == 0)) {
        all.n = e->n_samples;
        r = eval_each(e, &all);
        if (isatty(STDERR_FILENO) && !e->ctx->json)
            (void)fputs("\n", stderr);
    }
    if (r == 0) {
        eval_report(e);
        r = eval_count_broken(e);
    }
    map_fini(&e->by_task);
    json_decref(e->problems);
    json_decref(e->given);
    arena_fini(&e->arena);
    mem_free(e->results_path);
    (void)fd_close(e->results);
    return r < 0 ? context_fail(e->ctx, STATUS_FAILED) : STATUS_OK;
}
