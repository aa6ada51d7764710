/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/things.h"
#include "config/units.h"

static const struct flag gc_flags[] = {
    {0, "dry-run", NULL, "Only says what would be removed."},
    {0, "cache", NULL, "First clears the cache of build steps: the next builds run all of theirs."},
};

/* ---- pool ---- */

static int pool(struct context *ctx)
{
    AUTO_JSON json_t *answer = NULL;
    char total[UNIT_TEXT_MAX], left[UNIT_TEXT_MAX];
    if (context_read_all(ctx, NULL) < 0)
        return context_exit(ctx);
    if (service_ask(ctx, "GET", "/cove/v1/pool", NULL, "asking", &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json) {
        print_json(answer);
        return STATUS_OK;
    }
    unit_format_size(service_number(answer, "total_bytes"), total);
    unit_format_size(service_number(answer, "free_bytes"), left);
    terminal_line(stdout, "kind    %s", things_text(answer, "kind"));
    (void)printf("size    %s, of which %s are free\n", total, left);
    (void)printf("layers  %llu\n", service_number(answer, "layers"));
    (void)printf("limits  %s\n", json_is_true(json_object_get(answer, "limits"))
                                     ? "a sandbox's disk can be limited"
                                     : "a sandbox's disk can't be limited in this pool: see 'cove doctor'");
    return STATUS_OK;
}

const struct command cmd_pool = {
    .name = "pool",
    .summary = "show the storage that sandboxes use",
    .text = &text_pool,
    .operands = "",
    .run = pool,
};

/* ---- gc ---- */

static void print_layers(const json_t *layers, bool dry_run)
{
    uint64_t bytes = 0, n = 0;
    char size[UNIT_TEXT_MAX];
    JSON_FOREACH (one, layers) {
        bool gone = dry_run || json_is_true(json_object_get(one, "dropped"));
        unit_format_size(service_number(one, "bytes"), size);
        terminal_line(stdout, "%s  %s%s", things_text(one, "layer"), service_number(one, "bytes") ? size : "-",
                      gone ? "" : "  in use after all");
        bytes += gone ? service_number(one, "bytes") : 0;
        n += gone;
    }
    unit_format_size(bytes, size);
    (void)printf("%llu layer%s%s%s %s\n", (unsigned long long)n, n == 1 ? "" : "s", bytes ? ", " : "",
                 bytes ? size : "", dry_run ? "would be deleted" : "deleted");
}

static int gc(struct context *ctx)
{
    AUTO_JSON json_t *answer = NULL;
    bool dry_run = false, cache = false;
    if (CONTEXT_READ_ALL(ctx, {"dry-run", .on = &dry_run}, {"cache", .on = &cache}) < 0)
        return context_exit(ctx);
    if (dry_run && cache)
        return context_usage(ctx, "--dry-run and --cache exclude each other");
    AUTO_JSON json_t *body = json_pack("{s:b,s:b}", "dry_run", dry_run, "cache", cache);
    if (service_ask(ctx, "POST", "/cove/v1/pool/collect", body, "looking for what nobody needs", &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json)
        print_json(answer);
    else
        print_layers(json_object_get(answer, "layers"), dry_run);
    return STATUS_OK;
}

const struct command cmd_gc = {
    .name = "gc",
    .summary = "delete layers that nothing needs any more",
    .text = &text_gc,
    .operands = "",
    COMMAND_FLAGS(gc_flags),
    .run = gc,
};
