/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/service.h"
#include "cli/terminal.h"
#include "http/url.h"

#include <stdlib.h>
#include <unistd.h>

enum { TARGET_MAX = 8192, LINES_BYTES = 256 << 20 };

/* The lines of the answer, to be sorted by path: "A d /path", NUL behind each. */
struct lines {
    struct buf text;
    size_t n;
};

static int compare(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    return strcmp(x + 2, y + 2);
}

static void print_lines(const struct lines *l)
{
    bool is_tty = isatty(STDOUT_FILENO) == 1;
    const char **all = mem_array(l->n + 1, sizeof(*all)), *at = buf_data(&l->text);
    for (size_t i = 0; i < l->n; i++, at += strlen(at) + 1)
        all[i] = at;
    if (l->n)
        qsort(all, l->n, sizeof(*all), compare);
    for (size_t i = 0; i < l->n; i++) {
        terminal_print(stdout, is_tty, str_of(all[i]));
        (void)fputc('\n', stdout);
    }
    mem_free(all);
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static int take_line(struct context *ctx, struct lines *l, struct str line)
{
    AUTO_JSON json_t *one = json_loadb(line.p, line.n, 0, NULL);
    const json_t *error = json_object_get(one, "error");
    if (error)
        return err_set(&ctx->err, ERR_UNKNOWN, "%s", text_of(error, "message"));
    if (ctx->json) {
        (void)fwrite(line.p, 1, line.n, stdout);
        (void)fputc('\n', stdout);
        return 0;
    }
    const char *change = text_of(one, "change");
    buf_printf(&l->text, "%c %s%s",
               *change == 'a'   ? 'A'
               : *change == 'm' ? 'M'
                                : 'D',
               text_of(one, "path"), strcmp(text_of(one, "type"), "directory") == 0 ? "/" : "");
    buf_append_char(&l->text, '\0');
    l->n++;
    if (buf_error(&l->text) < 0)
        return err_set(&ctx->err, ERR_RESOURCE_EXHAUSTED,
                       "more differs than can be sorted here; --json writes it as it comes");
    return 0;
}

/* The beginning of a sandbox's id, or a name, which is the service's to know. */
static void append_side(struct buf *b, struct service *s, struct context *ctx, const char *text)
{
    AUTO_FREE char *id = NULL;
    struct context before = *ctx;
    bool may_be_id = *text == 'i' && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(text);
    if (may_be_id && service_resolve(s, text, &id) < 0) {
        ctx->err = before.err;
        memcpy(ctx->hint, before.hint, sizeof(ctx->hint));
    }
    (void)url_encode(b, str_of(id ? id : text), true);
}

static int print_difference(struct context *ctx, const char *a, const char *b)
{
    AUTO_BUF struct buf target = BUF_INIT(TARGET_MAX);
    struct lines lines = {.text = BUF_INIT(LINES_BYTES)};
    struct progress p;
    struct str line;
    int r;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s)
        return context_fail(ctx, STATUS_FAILED);
    buf_append_cstr(&target, "/v1/diff?a=");
    if (a)
        append_side(&target, s, ctx, a);
    buf_append_cstr(&target, "&b=");
    append_side(&target, s, ctx, b);
    buf_append_char(&target, '\0');
    if (buf_error(&target) < 0)
        return context_usage(ctx, "these are no names: they are too long");
    progress_start(&p, ctx->json);
    r = service_stream(s, "GET", buf_data(&target));
    while (r >= 0 && (r = service_line(s, &line)) > 0) {
        progress_show(&p, "comparing, %zu so far", lines.n);
        r = take_line(ctx, &lines, line);
    }
    progress_end(&p);
    if (r < 0 && ctx->err.code == ERR_NOT_FOUND && !*ctx->hint)
        (void)snprintf(ctx->hint, sizeof(ctx->hint), "'cove ls' lists sandboxes, 'cove snapshot ls' snapshots");
    if (!ctx->json && r >= 0)
        print_lines(&lines);
    buf_fini(&lines.text);
    return r < 0 ? context_fail(ctx, STATUS_FAILED) : STATUS_OK;
}

static int run(struct context *ctx)
{
    const char *value;
    int flag = context_next_flag(ctx, &value);
    if (flag < 0)
        return context_exit(ctx);
    int n = context_operands(ctx);
    char *const *operands = ctx->argv + ctx->argi;
    if (n < 1 || n > 2)
        return context_usage(ctx, n ? "give one sandbox or snapshot, or two"
                                    : "of what? give a sandbox's id, or a snapshot's name");
    return n == 1 ? print_difference(ctx, NULL, operands[0]) : print_difference(ctx, operands[0], operands[1]);
}

const struct command cmd_diff = {
    .name = "diff",
    .summary = "show which files a sandbox changed",
    .synopsis = "A\nA B",
    .description =
        "Shows the paths that A has changed since it was made; or, with two, what B has that A has not. Each is a sandbox, or a snapshot or "
        "template by its name. It costs what was changed, not what is there.\n"
        "\n"
        " A /path    added; a directory with all that is in it\n"
        " M /path    modified: other bytes, another owner or mode\n"
        " D /path    deleted; a directory that is gone stands for all that was in it\n"
        "\n"
        "Directories end with a slash. Sorted by path. With --json one object a line, in no order: change, type, path, mode, size.",
    .examples = "cove diff i3k\n"
                "cove diff before-the-upgrade i3k\n"
                "cove diff --json i3k | jq -r 'select(.change == \"deleted\").path'",
    .operands = "ids",
    .run = run,
};
