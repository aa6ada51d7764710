/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/arguments.h"
#include "base/mem.h"
#include "wire/supervisor.h"

void arguments_clear(struct arguments *a)
{
    for (size_t i = 0; a->at[i]; i++)
        mem_free(TAKE_PTR(a->at[i]));
}

/* Takes the value. */
static void arguments_put(struct arguments *a, size_t *n, const char *name, char *value)
{
    a->at[(*n)++] = mem_strdup(name);
    a->at[(*n)++] = value;
}

void arguments_make(struct arguments *a, const struct config *f, const char *domain, uint64_t disk_bytes,
                    const struct tier_list *tiers)
{
    size_t n = 0;
    arguments_clear(a);
    arguments_put(a, &n, "--protocol", mem_printf("%d", SUP_VERSION));
    arguments_put(a, &n, "--state", mem_strdup(f->state_dir));
    arguments_put(a, &n, "--data", mem_printf("%s/api", f->state_dir));
    if (domain)
        arguments_put(a, &n, "--domain", mem_strdup(domain));
    arguments_put(a, &n, "--max-sandboxes", mem_printf("%u", f->max_sandboxes));
    arguments_put(a, &n, "--max-timeout-ms", mem_printf("%llu", (unsigned long long)f->max_timeout_ms));
    arguments_put(a, &n, "--keep",
                  mem_printf("%u:%u:%llu", f->keep_events, f->keep_ended, (unsigned long long)f->keep_ended_ms));
    arguments_put(a, &n, "--default-timeout-ms", mem_printf("%llu", (unsigned long long)f->default_timeout_ms));
    arguments_put(a, &n, "--default-memory", mem_printf("%llu", (unsigned long long)f->default_memory_bytes));
    arguments_put(a, &n, "--default-disk", mem_printf("%llu", (unsigned long long)disk_bytes));
    arguments_put(a, &n, "--default-cpu-milli", mem_printf("%u", f->default_cpu_milli));
    AUTO_BUF struct buf list = BUF_INIT(TIER_LIST_MAX * (TIER_LABEL_MAX + TIER_WHY_MAX));
    tier_list_format(tiers, &list);
    arguments_put(a, &n, "--tiers", mem_printf("%.*s", STR_ARG(buf_str(&list))));
    if (f->default_tier)
        arguments_put(a, &n, "--default-tier", mem_strdup(f->default_tier));
    arguments_put(a, &n, "--owner-uid", mem_printf("%u", f->owner_uid));
    if (f->group_gid != (gid_t)-1)
        arguments_put(a, &n, "--group-gid", mem_printf("%u", f->group_gid));
    arguments_put(a, &n, "--log-level", mem_printf("%d", (int)f->log_level + (f->log_is_json ? LOG_AS_JSON : 0)));
    AUTO_FREE char *reserve = f->disk_reserve_bytes == CONFIG_RESERVE_AUTO
                                  ? NULL
                                  : mem_printf("disk-reserve=%llu\n", (unsigned long long)f->disk_reserve_bytes);
    if (f->builds || reserve)
        arguments_put(a, &n, "--builds", mem_printf("%s%s", f->builds ? f->builds : "", reserve ? reserve : ""));
    if (f->run_code_is_open)
        a->at[n++] = mem_strdup("--run-code-open");
    if (f->trust)
        arguments_put(a, &n, "--trust", mem_strdup(f->trust));
    assert(n < ARRAY_SIZE(a->at));
}

void arguments_add(struct sha1 *s, char *const *argv)
{
    for (; *argv; argv++)
        sha1_add(s, str_n(*argv, strlen(*argv) + 1));
}

void arguments_digest(const struct config *f, const char *domain, const char *key, struct str pem,
                      uint8_t ret_digest[static SHA1_BYTES])
{
    struct arguments asked = {{0}};
    struct sha1 s;
    sha1_init(&s);
    const struct tier_list none = {.n = 0}; /* what there is doesn't change by what is asked for */
    arguments_make(&asked, f, domain, f->default_disk_bytes, &none);
    arguments_add(&s, asked.at);
    for (size_t i = 0; i < f->n_tiers; i++)
        sha1_add(&s, str_of(f->tiers[i]));
    for (size_t i = 0; i < f->n_process_paths; i++)
        sha1_add(&s, str_of(f->process_paths[i]));
    sha1_add(&s, str_of(f->minimum_tier));
    sha1_add(&s, str_of(key));
    sha1_add(&s, pem);
    for (size_t i = 0; i < f->n_listen; i++)
        sha1_add(&s, str_of(f->listen[i].text));
    for (size_t i = 0; i < f->n_listen_tls; i++)
        sha1_add(&s, str_of(f->listen_tls[i].text));
    sha1_end(&s, ret_digest);
    arguments_clear(&asked);
}
