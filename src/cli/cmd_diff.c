/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/diff_line.h"
#include "cli/service.h"
#include "cli/terminal.h"
#include "http/url.h"

#include <errno.h>
#include <stdlib.h>

enum { TARGET_MAX = 8192, LINES_BYTES = 256 << 20, LINE_BYTES = 64 * 1024 };

static const struct flag flags[] = {
    {'z', 'z', "null", NULL, "Ends each with NUL instead of a line break, and writes names as they are."},
};

/* The lines of the answer (cli/diff_line.h), to be sorted by path: NUL behind each. */
struct lines {
    struct buf text;
    size_t n;
};

static int compare(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    return strcmp(x + 2, y + 2);
}

static void print_line(struct str line)
{
    AUTO_BUF struct buf b = BUF_INIT(LINE_BYTES);
    diff_line_escape(&b, line);
    (void)fwrite(buf_data(&b), 1, buf_len(&b), stdout);
    (void)fputc('\n', stdout);
}

static void print_lines(const struct lines *l, bool is_raw)
{
    const char **all = mem_array(l->n + 1, sizeof(*all)), *at = buf_data(&l->text);
    for (size_t i = 0; i < l->n; i++, at += strlen(at) + 1)
        all[i] = at;
    if (l->n)
        qsort(all, l->n, sizeof(*all), compare);
    for (size_t i = 0; i < l->n; i++) {
        if (is_raw)
            (void)fwrite(all[i], 1, strlen(all[i]) + 1, stdout);
        else
            print_line(str_of(all[i]));
    }
    mem_free(all);
}

/* Takes `one`. */
static int take_line(struct context *ctx, struct lines *l, struct str line, json_t *taken)
{
    AUTO_JSON json_t *one = taken;
    if (ctx->json) {
        (void)fwrite(line.p, 1, line.n, stdout);
        (void)fputc('\n', stdout);
        return 0;
    }
    if (diff_line_read(&l->text, one) == -EILSEQ)
        return err_set(&ctx->err, ERR_INTERNAL, "the service's answer has a line that tells of no difference");
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

static int print_difference(struct context *ctx, const char *a, const char *b, bool is_raw)
{
    AUTO_BUF struct buf target = BUF_INIT(TARGET_MAX);
    struct lines lines = {.text = BUF_INIT(LINES_BYTES)};
    struct progress p;
    struct str line;
    json_t *one;
    int r;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s)
        return context_fail(ctx, STATUS_FAILED);
    buf_append_cstr(&target, "/cove/v1/diff?a=");
    if (a)
        append_side(&target, s, ctx, a);
    buf_append_cstr(&target, "&b=");
    append_side(&target, s, ctx, b);
    buf_append_char(&target, '\0');
    if (buf_error(&target) < 0)
        return context_usage(ctx, "these are no names: they are too long");
    progress_start(&p, ctx->json);
    r = service_stream(s, "GET", buf_data(&target));
    while (r >= 0 && (r = service_object(s, &line, &one)) > 0) {
        progress_show(&p, "comparing, %zu so far", lines.n);
        r = take_line(ctx, &lines, line, one);
    }
    progress_end(&p);
    if (r < 0 && ctx->err.code == ERR_NOT_FOUND && !*ctx->hint)
        (void)snprintf(ctx->hint, sizeof(ctx->hint), "'cove ls' lists sandboxes, 'cove snapshot ls' snapshots");
    if (!ctx->json && r >= 0)
        print_lines(&lines, is_raw);
    buf_fini(&lines.text);
    return r < 0 ? context_fail(ctx, STATUS_FAILED) : STATUS_OK;
}

static int run(struct context *ctx)
{
    const char *value;
    bool is_raw = false;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0)
        is_raw = true;
    if (flag < 0)
        return context_exit(ctx);
    if (is_raw && ctx->json)
        return context_usage(ctx, "give one of -z and --json");
    int n = context_operands(ctx);
    char *const *operands = ctx->argv + ctx->argi;
    if (n < 1 || n > 2)
        return context_usage(ctx, n ? "give one sandbox or snapshot, or two"
                                    : "of what? give a sandbox's id, or a snapshot's name");
    return print_difference(ctx, n == 1 ? NULL : operands[0], operands[n - 1], is_raw);
}

const struct command cmd_diff = {
    .name = "diff",
    .summary = "show which files a sandbox changed",
    .synopsis = "[-z] A\n[-z] A B",
    .description =
        "Shows the paths that A has changed since it was made; or, with two, what B has that A has not. Each is a sandbox, or a snapshot or "
        "template by its name. It costs what either has of its own, not what both stand on.\n"
        "\n"
        " A /path    added; a directory with all that is in it\n"
        " M /path    modified: other bytes, another owner or mode, other capabilities or access lists\n"
        " D /path    deleted; a directory that is gone stands for all that was in it\n"
        "\n"
        "Directories end with a slash. Sorted by path. In names, control characters, those that change the direction of text or take no room, and bytes that "
        "are not UTF-8 are written as \\xNN, a backslash as \\\\, wherever it goes; with -z names are as they are.\n"
        "\n"
        "With --json one object a line, in no order: change, type, path, mode, size. Where a path is not UTF-8, path_base64 has its bytes, and path has U+FFFD "
        "where they are not.\n"
        "\n"
        "Times and other attributes are not compared. /etc/hostname, /etc/hosts and /etc/resolv.conf are left out where they are what "
        "Cove itself wrote in B; from a sandbox or snapshot to what it was made from, they are shown. A comparison that takes more than 20 million look-ups of names fails, and so does one of which a side is removed, paused or resumed meanwhile, or has something deeper than 256 directories or "
        "with a path of more than 4,095 bytes: then nothing is printed, and with --json what was is not all.",
    .examples = "cove diff i3k\n"
                "cove diff before-the-upgrade i3k\n"
                "cove diff -z i3k | grep -z '^D' | tr '\\0' '\\n'\n"
                "cove diff --json i3k | jq -r 'select(.change == \"deleted\").path'",
    .operands = "id",
    COMMAND_FLAGS(flags),
    .run = run,
};
