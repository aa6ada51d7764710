/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/doctor.h"
#include "base/buf.h"
#include "base/fd.h"
#include "config/config.h"
#include "kernel/probe.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void print_line(const struct probe *p, const struct probe_result *r)
{
    (void)printf("%-9s %-19s %s\n", probe_status_name(r->status), p->name, r->detail);
    (void)fflush(stdout);
}

static void append_json(struct buf *b, const struct probe *p, const struct probe_result *r, bool first)
{
    (void)buf_append_cstr(b, first ? "{\"probes\":[" : ",");
    (void)buf_append_cstr(b, "{\"name\":");
    (void)buf_append_json_string(b, str_of(p->name));
    (void)buf_append_cstr(b, ",\"status\":");
    (void)buf_append_json_string(b, str_of(probe_status_name(r->status)));
    (void)buf_append_cstr(b, ",\"detail\":");
    (void)buf_append_json_string(b, str_of(r->detail));
    (void)buf_append_char(b, '}');
}

int doctor(const struct config *config, bool json)
{
    size_t n, failed = 0;
    const struct probe *probes = probe_list(&n);
    struct stat st;
    const struct probe_env env = {stat(config->state_dir, &st) == 0 && S_ISDIR(st.st_mode) ? config->state_dir
                                                                                           : "/var/tmp"};
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    for (size_t i = 0; i < n; i++) {
        struct probe_result r = {PROBE_FAILED, "the probe said nothing"};
        probes[i].run(&env, &r);
        failed += r.status == PROBE_FAILED;
        if (json)
            append_json(&b, &probes[i], &r, i == 0);
        else
            print_line(&probes[i], &r);
    }
    if (json) {
        (void)buf_printf(&b, "],\"ok\":%s}\n", failed ? "false" : "true");
        return fd_write_all(STDOUT_FILENO, buf_data(&b), buf_len(&b)) < 0 || failed ? 1 : 0;
    }
    (void)printf("\n%s\n", failed ? "Sandboxes can't be made on this machine until what failed above is mended."
                                  : "Sandboxes can be made on this machine.");
    return failed ? 1 : 0;
}
