/* SPDX-License-Identifier: Apache-2.0 */
/* What can be enforced is measured by coved, which has the probes and the privileges; here it is shown. */
#include "base/buf.h"
#include "base/child.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/service.h"

enum { REPORT_MAX = 1 << 20 };

/* {"probes":[{"name","status","detail"}],"ok":true} */
static void doctor_print_report(const json_t *report)
{
    static const char *const columns[] = {"status", "name", "detail"};
    struct table t;
    table_init(&t, ARRAY_SIZE(columns));
    JSON_FOREACH (probe, json_object_get(report, "probes"))
        for (size_t c = 0; c < ARRAY_SIZE(columns); c++)
            table_add(&t, str_of(service_text(probe, columns[c])));
    table_print(&t, stdout);
    table_fini(&t);
    (void)printf("\n%s\n", json_is_true(json_object_get(report, "ok")) ? "Sandboxes can be made on this machine."
                                                                       : "Sandboxes can't be made on this machine.");
}

static int doctor_run(struct context *ctx)
{
    if (context_read_all(ctx, NULL) < 0)
        return context_exit(ctx);

    AUTO_FREE char *path = NULL;
    AUTO_BUF struct buf report = BUF_INIT(REPORT_MAX);
    if (context_find_coved(ctx, &path) < 0)
        return context_fail(ctx, STATUS_FAILED);
    int status = child_ask(path, CHILD_ARGV("coved", "doctor", "--json"), &report);
    if (status < 0) {
        (void)err_errno(&ctx->err, status, "run %s", path);
        return context_fail(ctx, STATUS_FAILED);
    }
    AUTO_JSON json_t *json = json_loadb(buf_data(&report), buf_len(&report), 0, NULL);
    if (!json_is_array(json_object_get(json, "probes"))) {
        if (status == 0)
            (void)err_set(&ctx->err, ERR_INTERNAL, "%s doctor --json did not answer as expected", path);
        else
            (void)err_set(&ctx->err, ERR_INTERNAL, "%s doctor failed, see above", path);
        return context_fail(ctx, STATUS_FAILED);
    }
    if (ctx->json)
        (void)fwrite(buf_data(&report), 1, buf_len(&report), stdout);
    else
        doctor_print_report(json);
    return json_is_true(json_object_get(json, "ok")) ? STATUS_OK : STATUS_FAILED;
}

const struct command cmd_doctor = {
    .name = "doctor",
    .summary = "show what this machine can enforce",
    .text = &text_doctor,
    .operands = "",
    .is_local = true,
    .run = doctor_run,
};
