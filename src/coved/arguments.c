/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/arguments.h"
#include "base/mem.h"
#include "wire/supervisor.h"

void arguments_clear(struct arguments *a)
{
    for (size_t i = 0; a->at[i]; i++)
        mem_free(TAKE_PTR(a->at[i]));
}

void arguments_make(struct arguments *a, const struct config *f, const char *domain, uint64_t disk_bytes)
{
    size_t n = 0;
    arguments_clear(a);
    a->at[n++] = mem_strdup("--protocol");
    a->at[n++] = mem_printf("%d", SUP_VERSION);
    a->at[n++] = mem_strdup("--state");
    a->at[n++] = mem_strdup(f->state_dir);
    a->at[n++] = mem_strdup("--data");
    a->at[n++] = mem_printf("%s/api", f->state_dir);
    if (domain) {
        a->at[n++] = mem_strdup("--domain");
        a->at[n++] = mem_strdup(domain);
    }
    a->at[n++] = mem_strdup("--max-sandboxes");
    a->at[n++] = mem_printf("%u", f->max_sandboxes);
    a->at[n++] = mem_strdup("--max-timeout-ms");
    a->at[n++] = mem_printf("%llu", (unsigned long long)f->max_timeout_ms);
    a->at[n++] = mem_strdup("--keep");
    a->at[n++] = mem_printf("%u:%u:%llu", f->keep_events, f->keep_ended, (unsigned long long)f->keep_ended_ms);
    a->at[n++] = mem_strdup("--default-timeout-ms");
    a->at[n++] = mem_printf("%llu", (unsigned long long)f->default_timeout_ms);
    a->at[n++] = mem_strdup("--default-memory");
    a->at[n++] = mem_printf("%llu", (unsigned long long)f->default_memory_bytes);
    a->at[n++] = mem_strdup("--default-disk");
    a->at[n++] = mem_printf("%llu", (unsigned long long)disk_bytes);
    a->at[n++] = mem_strdup("--default-cpu-milli");
    a->at[n++] = mem_printf("%u", f->default_cpu_milli);
    a->at[n++] = mem_strdup("--owner-uid");
    a->at[n++] = mem_printf("%u", f->owner_uid);
    a->at[n++] = mem_strdup("--log-level");
    a->at[n++] = mem_printf("%d", (int)f->log_level + (f->log_is_json ? LOG_AS_JSON : 0));
    AUTO_FREE char *reserve = f->disk_reserve_bytes == CONFIG_RESERVE_AUTO
                                  ? NULL
                                  : mem_printf("disk-reserve=%llu\n", (unsigned long long)f->disk_reserve_bytes);
    if (f->builds || reserve) {
        a->at[n++] = mem_strdup("--builds");
        a->at[n++] = mem_printf("%s%s", f->builds ? f->builds : "", reserve ? reserve : "");
    }
    if (f->trust) {
        a->at[n++] = mem_strdup("--trust");
        a->at[n++] = mem_strdup(f->trust);
    }
    assert(n < ARRAY_SIZE(a->at));
}
