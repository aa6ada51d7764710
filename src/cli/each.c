/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/each.h"
#include "base/mem.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"

static int do_one(struct context *ctx, struct service *s, const struct each *what, const char *text, json_t *done)
{
    AUTO_FREE char *id = NULL;
    if (service_resolve(s, text, &id) < 0)
        return context_fail(ctx, -1);
    AUTO_FREE char *target = service_target(id, "%s%s", what->verb ? "/" : "", what->verb ? what->verb : "");
    AUTO_JSON json_t *answer = NULL;
    if (service_call(s, what->method, target, what->body, what->doing, what->answered ? &answer : NULL) < 0)
        return context_fail(ctx, -1);
    (void)json_array_append_new(done, json_string(id));
    if (!ctx->json)
        (void)printf("%s\n", id);
    if (what->answered)
        what->answered(ctx, id, answer);
    return 0;
}

int each_sandbox(struct context *ctx, const struct each *what)
{
    int status = STATUS_OK, n = context_operands(ctx);
    if (!what->all == (n == 0))
        return context_usage(ctx, what->all ? "give either ids or --all" : "which? give an id, several, or --all");
    AUTO_JSON json_t *done = json_array(), *sandboxes = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || (what->all && service_sandboxes(s, &sandboxes) < 0))
        return context_fail(ctx, STATUS_FAILED);
    struct terminal_progress p;
    n = what->all ? (int)json_array_size(sandboxes) : n;
    progress_start(&p, ctx->json);
    for (int i = 0; i < n; i++) {
        const json_t *one = what->all ? json_array_get(sandboxes, (size_t)i) : NULL;
        const char *id = one ? service_text(one, "id") : ctx->argv[ctx->argi + i];
        *ctx->hint = '\0';
        if (one &&
            ((*what->all && strcmp(service_text(one, "state"), what->all) != 0) || (what->spares && what->spares(one))))
            continue;
        progress_show(&p, "%s, %d of %d", what->doing, i + 1, n);
        /* Of all, one that ends meanwhile by itself is as good as done. */
        if (do_one(ctx, s, what, id, done) < 0 && !(what->all && ctx->err.code == ERR_NOT_FOUND))
            status = STATUS_FAILED;
    }
    progress_end(&p);
    if (ctx->json) {
        AUTO_JSON json_t *answer = json_pack("{s:O}", what->done, done);
        print_json(answer);
    }
    return status;
}
