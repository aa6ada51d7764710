/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec/exec_report.h"
#include "cli/print.h"

const char *exec_report_reason(const struct exec_result *result, bool failed)
{
    return result->interrupted ? "interrupted" : failed ? "failed" : NULL;
}

/* It has an end of its own only when it was waited for. */
static void print_end(const struct exec_report *r)
{
    if (!r->result->ended)
        (void)fputs("\"exit_code\":null,\"signal\":null", stdout);
    else if (r->result->signaled)
        (void)printf("\"exit_code\":null,\"signal\":%u", r->result->code);
    else
        (void)printf("\"exit_code\":%u,\"signal\":null", r->result->code);
}

void exec_report_print(const char *head, const struct exec_report *r)
{
    (void)printf("{%s", head);
    print_end(r);
    (void)fputs(",\"reason\":", stdout);
    if (r->reason)
        print_json_string(stdout, str_of(r->reason));
    else
        (void)fputs("null", stdout);
    (void)printf(",\"truncated\":%s,\"stdout\":", r->result->dropped ? "true" : "false");
    print_json_string(stdout, buf_str(r->out));
    (void)fputs(",\"stderr\":", stdout);
    print_json_string(stdout, buf_str(r->err));
    (void)fputs("}\n", stdout);
}
