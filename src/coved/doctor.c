/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/doctor.h"
#include "base/buf.h"
#include "base/fd.h"
#include "config/config.h"
#include "config/units.h"
#include "coved/storage/doctor_storage.h"
#include "coved/storage/reserve.h"
#include "kernel/probe.h"
#include "tier/microvm.h"
#include "tier/process.h"
#include "tier/tier.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static void print_line(const struct probe *p, const struct probe_result *r)
{
    (void)printf("%-9s %-19s %s\n", probe_status_name(r->status), p->name, r->detail);
    (void)fflush(stdout);
}

static void disk_reserve(const struct config *config, const struct probe_env *env, struct probe_result *r)
{
    struct statvfs fs;
    struct err err;
    char reserve[UNIT_TEXT_MAX];
    if (statvfs(env->scratch_dir, &fs) < 0) {
        probe_say(r, PROBE_FAILED, "can't look how much is free on %s: %s", env->scratch_dir, strerror(errno));
        return;
    }
    unit_format_size(reserve_bytes(&fs, config->disk_reserve_bytes), reserve);
    if (reserve_judge(&fs, config->disk_reserve_bytes, &err) < 0)
        probe_say(r, PROBE_FAILED, "%s", err.msg);
    else if (config->disk_reserve_bytes == 0)
        probe_say(r, PROBE_DEGRADED, "none, as configured: sandboxes are created however full the disk is");
    else
        probe_say(r, PROBE_OK, "no sandbox is created with less than %s or 2 %% of the inodes free", reserve);
}

static void doctor_tier(const struct tier_set *set, size_t i, struct probe_result *r)
{
    const char *missing = set->list.at[i].missing;
    char seen[160];
    struct err err;
    if (missing[0])
        probe_say(r, PROBE_MISSING, "%s", missing);
    else if (set->tiers[i]->try_out && set->tiers[i]->try_out(seen, sizeof(seen), &err) < 0)
        probe_say(r, PROBE_MISSING, "%s", err.msg);
    else if (set->tiers[i]->try_out)
        probe_say(r, PROBE_OK, "%s: %s", set->tiers[i]->summary, seen);
    else
        probe_say(r, PROBE_OK, "%s", set->tiers[i]->summary);
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
    static const struct probe ours[] = {{"storage pool", NULL}, {"disk limit", NULL}, {"disk reserve", NULL}};
    struct doctor_storage storage;
    doctor_storage(config, &storage);
    struct tier_set set;
    struct err err;
    microvm_configure(config->microvm_guest, config->microvm_emulate);
    process_configure(config->process_paths, config->n_process_paths);
    int known = tier_set_probe(NULL, config->tiers, config->n_tiers, config->minimum_tier, &set, &err);
    const size_t n_ours = n + ARRAY_SIZE(ours), n_all = n_ours + (known < 0 ? 1 : set.list.n);
    for (size_t i = 0; i < n_all; i++) {
        char name[TIER_LABEL_MAX + 8];
        (void)snprintf(name, sizeof(name), "tier %s", i < n_ours || known < 0 ? "" : set.list.at[i - n_ours].name);
        const struct probe tier = {name, NULL};
        const struct probe *p = i < n ? &probes[i] : i < n_ours ? &ours[i - n] : &tier;
        struct probe_result r = {PROBE_FAILED, "the probe said nothing"};
        if (p == &tier && known < 0)
            probe_say(&r, PROBE_FAILED, "%s", err.msg);
        else if (p == &tier)
            doctor_tier(&set, i - n_ours, &r);
        else if (p->run)
            p->run(&env, &r);
        else if (p == &ours[0])
            r = storage.pool;
        else if (p == &ours[1])
            r = storage.limits;
        else
            disk_reserve(config, &env, &r);
        failed += r.status == PROBE_FAILED;
        if (json)
            append_json(&b, p, &r, i == 0);
        else
            print_line(p, &r);
    }
    if (json) {
        (void)buf_printf(&b, "],\"ok\":%s}\n", failed ? "false" : "true");
        return fd_write_all(STDOUT_FILENO, buf_data(&b), buf_len(&b)) < 0 || failed ? 1 : 0;
    }
    (void)printf("\n%s\n", failed ? "Sandboxes can't be made on this machine until what failed above is mended."
                                  : "Sandboxes can be made on this machine.");
    return failed ? 1 : 0;
}
