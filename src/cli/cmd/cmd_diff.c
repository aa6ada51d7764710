/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/path.h"
#include "cli/cmd/commands.h"
#include "cli/exec/exec.h"
#include "cli/exec/terminal.h"
#include "cli/files/diff_line.h"
#include "cli/files/diff_patch.h"
#include "cli/print.h"
#include "cli/service.h"
#include "http/url.h"

#include <stdlib.h>

enum { DIFF_TARGET_MAX = 8192, LINES_BYTES = 256 << 20, LINE_BYTES = 64 * 1024 };

static const struct flag diff_flags[] = {
    {'p', "patch", NULL, "Prints the difference of the contents, as a patch that 'git apply' takes."},
    {0, "path", "DIR", "With --patch: only what is below this directory, with names from there. Default: /."},
    {'z', "null", NULL, "Ends each with NUL instead of a line break, and writes names as they are."},
};

/* The lines of the answer (cli/files/diff_line.h), to be sorted by path: NUL behind each. */
struct lines {
    struct buf text;
    size_t n;
};

static int diff_compare(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    return strcmp(x + 2, y + 2);
}

static void diff_print_line(struct str line)
{
    AUTO_BUF struct buf b = BUF_INIT(LINE_BYTES);
    diff_line_escape(&b, line);
    (void)fwrite(buf_data(&b), 1, buf_len(&b), stdout);
    (void)fputc('\n', stdout);
}

/* Those of l, sorted by path. Free the array, not what it points to. */
static const char **sort_lines(const struct lines *l)
{
    const char **all = mem_array(l->n + 1, sizeof(*all)), *at = buf_data(&l->text);
    for (size_t i = 0; i < l->n; i++, at += strlen(at) + 1)
        all[i] = at;
    if (l->n)
        qsort(all, l->n, sizeof(*all), diff_compare);
    return all;
}

static void diff_print_lines(const struct lines *l, bool is_raw)
{
    const char **all = sort_lines(l);
    for (size_t i = 0; i < l->n; i++) {
        if (is_raw)
            (void)fwrite(all[i], 1, strlen(all[i]) + 1, stdout);
        else
            diff_print_line(str_of(all[i]));
    }
    mem_free(all);
}

static int take_line(struct context *ctx, struct lines *l, struct str line, const json_t *one)
{
    if (ctx->json) {
        print_json_line(one, line);
        l->n++;
        return 0;
    }
    if (diff_line_read(&l->text, one) == -EILSEQ)
        return err_set(&ctx->err, ERR_INTERNAL, "the service's answer has an invalid line");
    buf_append_char(&l->text, '\0');
    l->n++;
    if (buf_error(&l->text) < 0)
        return err_set(&ctx->err, ERR_RESOURCE_EXHAUSTED,
                       "more differs than can be sorted here; --json writes it as it comes");
    return 0;
}

/* The beginning of a sandbox's id, or a name, which is the service's to know; by_name: also a sandbox's name. */
static void append_side(struct buf *b, struct service *s, struct context *ctx, const char *text, bool by_name)
{
    AUTO_FREE char *id = NULL;
    struct context before = *ctx;
    bool may_be_id = *text == 'i' && str_is_of(str_of(text), "a-z0-9");
    if ((may_be_id || by_name) && service_resolve(s, text, &id) < 0) {
        ctx->err = before.err;
        memcpy(ctx->hint, before.hint, sizeof(ctx->hint));
    }
    (void)url_encode(b, str_of(id ? id : text), true);
}

/* a, b: as the service knows them, encoded. */
static int compare_sides(struct context *ctx, struct service *s, struct str a, struct str b, struct lines *lines)
{
    AUTO_FREE char *target = mem_printf("/cove/v1/diff?a=%.*s&b=%.*s", STR_ARG(a), STR_ARG(b));
    struct terminal_progress p;
    json_t *one;
    progress_start(&p, ctx->json);
    int r = service_stream(s, "GET", target);
    while (r >= 0 && (r = service_object(s, &one)) > 0) {
        progress_show(&p, "comparing, %zu so far", lines->n);
        r = take_line(ctx, lines, service_line(s), one);
    }
    progress_end(&p);
    if (r < 0 && ctx->err.code == ERR_NOT_FOUND && !*ctx->hint)
        context_hint(ctx, "'cove ls' lists sandboxes, 'cove snapshot ls' snapshots");
    return r;
}

static int compare_named(struct context *ctx, struct service *s, const char *a, const char *b, bool by_name,
                         struct lines *lines)
{
    AUTO_BUF struct buf from = BUF_INIT(DIFF_TARGET_MAX), to = BUF_INIT(DIFF_TARGET_MAX);
    if (a)
        append_side(&from, s, ctx, a, by_name);
    append_side(&to, s, ctx, b, by_name);
    if (buf_error(&from) || buf_error(&to))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "the names are too long");
    return compare_sides(ctx, s, buf_str(&from), buf_str(&to), lines);
}

static int print_difference(struct context *ctx, const char *a, const char *b, bool is_raw)
{
    struct lines lines = {.text = BUF_INIT(LINES_BYTES)};
    AUTO(service_close) struct service *s = service_open(ctx);
    int r = s ? compare_named(ctx, s, a, b, false, &lines) : -1;
    if (s && r < 0 && ctx->err.code == ERR_NOT_FOUND && !lines.n)
        r = compare_named(ctx, s, a, b, true, &lines);
    if (!ctx->json && r >= 0)
        diff_print_lines(&lines, is_raw);
    buf_fini(&lines.text);
    return r < 0 ? context_fail(ctx, STATUS_FAILED) : STATUS_OK;
}

static int patch_sides(struct context *ctx, struct service *s, struct diff_side sides[static 2], const char *a,
                       const char *b, const char *root)
{
    struct lines lines = {.text = BUF_INIT(LINES_BYTES)};
    if (diff_side_open(ctx, s, b, &sides[1]) < 0)
        return -1;
    if (!a && sides[1].is_made)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT,
                       "%.64s is not a sandbox: name what to compare it with, "
                       "before it",
                       b);
    if ((a ? diff_side_open(ctx, s, a, &sides[0]) : diff_side_open_base(ctx, s, sides[1].id, &sides[0])) < 0)
        return -1;
    int r = compare_sides(ctx, s, str_of(sides[0].id), str_of(sides[1].id), &lines);
    if (r >= 0) {
        const char **all = sort_lines(&lines);
        r = diff_patch_print(ctx, &sides[0], &sides[1], root, all, lines.n);
        mem_free(all);
    }
    buf_fini(&lines.text);
    return r;
}

static int print_patch(struct context *ctx, const char *a, const char *b, const char *path)
{
    char root[PATH_TEXT_MAX];
    struct diff_side sides[2] = {{0}};
    if (path[0] != '/' || path_clean(str_of(path), root) < 0)
        return context_usage(ctx, "--path %.64s: write an absolute path of the sandbox", path);
    AUTO(service_close) struct service *s = service_open(ctx);
    exec_block_signals();
    int r = s ? patch_sides(ctx, s, sides, a, b, root) : -1;
    const struct err why = ctx->err;
    diff_side_close(ctx, &sides[0]);
    diff_side_close(ctx, &sides[1]);
    ctx->err = why;
    return r < 0 ? context_fail(ctx, STATUS_FAILED) : STATUS_OK;
}

static int diff_run(struct context *ctx)
{
    const char *path = NULL;
    bool is_raw = false, is_patch = false;
    if (CONTEXT_READ(ctx, {"path", .text = &path}, {"patch", .on = &is_patch}, {"null", .on = &is_raw}) < 0)
        return context_exit(ctx);
    if (is_raw && ctx->json)
        return context_usage(ctx, "give one of -z and --json");
    if (is_patch && (is_raw || ctx->json))
        return context_usage(ctx, "--patch can't be combined with -z and --json");
    if (path && !is_patch)
        return context_usage(ctx, "--path needs --patch");
    int n = context_operands(ctx);
    char *const *operands = ctx->argv + ctx->argi;
    if (n < 1 || n > 2)
        return context_usage(ctx, n ? "give one sandbox or snapshot, or two"
                                    : "of what? give a sandbox's id, or a snapshot's name");
    if (is_patch)
        return print_patch(ctx, n == 1 ? NULL : operands[0], operands[n - 1], path ? path : "/");
    return print_difference(ctx, n == 1 ? NULL : operands[0], operands[n - 1], is_raw);
}

const struct command cmd_diff = {
    .name = "diff",
    .summary = "show which files a sandbox changed",
    .text = &text_diff,
    .operands = "id",
    COMMAND_FLAGS(diff_flags),
    .run = diff_run,
};
