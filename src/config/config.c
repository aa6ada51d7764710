/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "config/document.h"
#include "config/units.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (1024ULL * 1024)
#define DAY_MS (86400ULL * 1000)

struct config_field;

/* A setter gets one scalar (lists: one for each item) and says in *err what is wrong with it, without file and line. */
typedef int (*set_fn)(struct config *c, const struct config_field *f, struct str value, struct err *err);

struct config_field {
    const char *name; /* with its section: "defaults.memory" */
    const char *env;
    set_fn set;
    bool is_list; /* a scalar counts as a list of one */
    size_t offset;
    uint64_t least, most;
};

static void *config_member(struct config *c, const struct config_field *f)
{
    return (char *)c + f->offset;
}

typedef void (*format_fn)(uint64_t number, char ret_text[static UNIT_TEXT_MAX]);

static void format_number(uint64_t number, char ret_text[static UNIT_TEXT_MAX])
{
    (void)snprintf(ret_text, UNIT_TEXT_MAX, "%llu", (unsigned long long)number);
}

static void format_cpus(uint64_t milli, char ret_text[static UNIT_TEXT_MAX])
{
    (void)snprintf(ret_text, UNIT_TEXT_MAX, "%g", (double)milli / 1000);
}

static int check_range(const struct config_field *f, uint64_t number, format_fn format, struct err *err)
{
    char bound[UNIT_TEXT_MAX];
    if (number >= f->least && number <= f->most)
        return 0;
    format(number < f->least ? f->least : f->most, bound);
    return err_set(err, ERR_INVALID_ARGUMENT, "%s is out of range: %s at %s", f->name, bound,
                   number < f->least ? "least" : "most");
}

static int set_dir(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    char path[PATH_TEXT_MAX];
    char **slot = config_member(c, f);
    if (value.n == 0 || value.p[0] != '/' || path_clean(value, path) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be an absolute path", f->name);
    /* Socket addresses end at 107 bytes, and "/cove.sock" follows. */
    if (strlen(path) > f->most)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s is longer than %u bytes", f->name, (unsigned)f->most);
    mem_free(*slot);
    *slot = mem_strdup(path);
    return 0;
}

static int set_listen(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (c->n_listen == CONFIG_LISTEN_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s has more than %d addresses", f->name, CONFIG_LISTEN_MAX);
    if (config_listen_parse(value, &c->listen[c->n_listen], err) < 0)
        return -1;
    c->n_listen++;
    return 0;
}

static int set_listen_tls(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (c->n_listen_tls == CONFIG_LISTEN_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s has more than %d addresses", f->name, CONFIG_LISTEN_MAX);
    if (config_listen_parse(value, &c->listen_tls[c->n_listen_tls], err) < 0)
        return -1;
    c->n_listen_tls++;
    c->asks_for_tls = true;
    return 0;
}

static int set_bool(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (!str_eqc(value, "true") && !str_eqc(value, "false"))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be true or false", f->name);
    *(bool *)config_member(c, f) = str_eqc(value, "true");
    return 0;
}

static int set_domain(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    bool ok = value.n > 0 && value.n <= 200 && value.p[0] != '.' && value.p[0] != '-' && value.p[value.n - 1] != '.';
    for (size_t i = 0; ok && i < value.n; i++) {
        char ch = value.p[i];
        ok = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '-' || (ch == '.' && value.p[i - 1] != '.');
    }
    if (!ok)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a host name in lower case, without port", f->name);
    char **slot = config_member(c, f);
    mem_free(*slot);
    *slot = mem_strndup(value.p, value.n);
    return 0;
}

static int set_u32(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    uint64_t number;
    if (str_to_u64(value, &number) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a whole number", f->name);
    if (check_range(f, number, format_number, err) < 0)
        return -1;
    *(uint32_t *)config_member(c, f) = (uint32_t)number;
    return 0;
}

static int set_size(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    uint64_t number;
    if (unit_parse_size(value, &number) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a size such as 512MiB", f->name);
    if (number != 0 && check_range(f, number, unit_format_size, err) < 0)
        return -1;
    *(uint64_t *)config_member(c, f) = number;
    return 0;
}

static int set_duration(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    uint64_t number;
    if (unit_parse_duration(value, &number) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a duration such as 5m", f->name);
    if (check_range(f, number, unit_format_duration, err) < 0)
        return -1;
    *(uint64_t *)config_member(c, f) = number;
    return 0;
}

static int set_cpus(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    uint32_t number;
    if (unit_parse_cpus(value, &number) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a number such as 1.5", f->name);
    if (number != 0 && check_range(f, number, format_cpus, err) < 0)
        return -1;
    *(uint32_t *)config_member(c, f) = number;
    return 0;
}

const char *const config_pools[] = {[CONFIG_POOL_AUTO] = "auto",
                                    [CONFIG_POOL_BTRFS] = "btrfs",
                                    [CONFIG_POOL_REFLINK] = "reflink",
                                    [CONFIG_POOL_COPY] = "copy"};

static int set_pool(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(config_pools); i++) {
        if (str_eqc(value, config_pools[i])) {
            *(enum config_pool *)config_member(c, f) = (enum config_pool)i;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID_ARGUMENT, "%s must be auto, btrfs, reflink or copy", f->name);
}

static int set_level(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (str_eqc(value, names[i])) {
            *(enum log_level *)config_member(c, f) = (enum log_level)i;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID_ARGUMENT, "%s must be debug, info, warn or error", f->name);
}

static int set_format(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (!str_eqc(value, "text") && !str_eqc(value, "json"))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be text or json", f->name);
    c->log_is_json = str_eqc(value, "json");
    return 0;
}

/* What only cove-api looks at goes there as a line of its own; a later one of the same key counts. f->name: "builds.step_timeout" is "step-timeout-ms" there. */
static void add_build_line(struct config *c, const char *key, struct str value)
{
    char *all = mem_printf("%s%s=%.*s\n", c->builds ? c->builds : "", key, STR_ARG(value));
    mem_free(c->builds);
    c->builds = all;
}

static int set_build_number(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    static const struct {
        const char *name, *key, *what;
        int (*parse)(struct str s, uint64_t *ret_value);
        format_fn format;
    } known[] = {
        {"builds.concurrency", "concurrency", "whole number", str_to_u64, format_number},
        {"builds.step_timeout", "step-timeout-ms", "duration such as 1h", unit_parse_duration, unit_format_duration},
        {"builds.timeout", "timeout-ms", "duration such as 2h", unit_parse_duration, unit_format_duration},
        {"builds.disk", "disk", "size such as 10GiB", unit_parse_size, unit_format_size}};
    char text[32];
    uint64_t number;
    size_t i = 0;
    while (strcmp(known[i].name, f->name) != 0)
        i++;
    if (known[i].parse(value, &number) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a %s", f->name, known[i].what);
    if (check_range(f, number, known[i].format, err) < 0)
        return -1;
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    add_build_line(c, known[i].key, str_of(text));
    return 0;
}

static size_t count_lines(const char *lines, const char *key)
{
    size_t n = 0;
    struct str rest = str_of(lines), line;
    while (str_split(&rest, '\n', &line))
        n += str_starts(line, str_of(key));
    return n;
}

/* Rules and variables: lines "net.allow=example.org", "env=NAME=value". */
static int set_line(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    bool is_env = strcmp(f->name, "mirrors.env") == 0, ok = value.n > 0 && value.n <= 1024;
    for (size_t i = 0; ok && i < value.n; i++)
        ok = value.p[i] > ' ' && value.p[i] < 0x7f;
    if (!ok || (is_env && str_find_char(value, '=') <= 0))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: \"%.*s\" is %s", f->name, (int)MIN(value.n, 64), value.p,
                       is_env ? "not NAME=value" : "no name, address or network");
    if (count_lines(c->builds, f->name) >= CONFIG_RULES_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d", f->name, CONFIG_RULES_MAX);
    add_build_line(c, f->name, value);
    return 0;
}

static int set_checkpoint(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    uint64_t n;
    bool is_word = str_eqc(value, "action") || str_eqc(value, "risk") || str_eqc(value, "off");
    if (!is_word && (str_to_u64(value, &n) < 0 || n < 1 || n > f->most))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be action, a number of actions, risk or off", f->name);
    add_build_line(c, "checkpoint", value);
    return 0;
}

static int set_registry(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    bool is_url = str_starts(value, STR("http://")) || str_starts(value, STR("https://"));
    if (!is_url || str_find_char(value, '\'') >= 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be an http or https URL", f->name);
    return set_line(c, f, value, err);
}

static int set_tier(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    bool ok = value.n > 0 && value.n < 16;
    for (size_t i = 0; ok && i < value.n; i++)
        ok = value.p[i] >= 'a' && value.p[i] <= 'z';
    if (!ok)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: \"%.*s\" is not the name of a tier", f->name,
                       (int)MIN(value.n, 64), value.p);
    if (f->is_list && c->n_tiers == ARRAY_SIZE(c->tiers))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %zu", f->name, ARRAY_SIZE(c->tiers));
    char **slot = f->is_list ? &c->tiers[c->n_tiers++] : config_member(c, f);
    mem_free(*slot);
    *slot = mem_strndup(value.p, value.n);
    return 0;
}

static int set_trust(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (!value.n || value.p[0] != '/' || str_has_nul(value))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be an absolute path", f->name);
    if (c->n_trust_paths == ARRAY_SIZE(c->trust_paths))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %zu", f->name, ARRAY_SIZE(c->trust_paths));
    c->trust_paths[c->n_trust_paths++] = mem_strndup(value.p, value.n);
    return 0;
}

/* A name that isn't there, or a number. */
static int set_group(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (!value.n || value.n > 64 || str_has_nul(value))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be the name or number of a group", f->name);
    mem_free(c->group);
    c->group = mem_strndup(value.p, value.n);
    return 0;
}

gid_t config_group(const struct config *c)
{
    const char *name = c->group ? c->group : "cove";
    const struct group *entry = getgrnam(name);
    uint64_t number;
    if (!entry && c->group && str_to_u64(str_of(name), &number) == 0 && number > 0 && number < UINT32_MAX)
        return (gid_t)number;
    return entry && entry->gr_gid ? entry->gr_gid : (gid_t)-1;
}

static int set_host_path(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    char clean[PATH_TEXT_MAX];
    if (value.n < 2 || value.p[0] != '/' || str_has_nul(value) || path_clean(value, clean) < 0 ||
        !str_eqc(value, clean))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be an absolute, clean path, and not all of the host",
                       f->name);
    if (c->n_host_paths == ARRAY_SIZE(c->host_paths))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %zu", f->name, ARRAY_SIZE(c->host_paths));
    c->host_paths[c->n_host_paths++] = mem_strndup(value.p, value.n);
    return 0;
}

static const char *image_key(const struct config_field *f)
{
    return strcmp(f->name, "images.aliases") == 0   ? "alias="
           : strcmp(f->name, "webhooks.allow") == 0 ? "webhook="
                                                    : "insecure=";
}

static void forget_lines(char *lines, const char *key)
{
    char *to = lines;
    struct str rest = str_of(lines), line;
    while (lines && str_split(&rest, '\n', &line)) {
        if (!line.n || str_starts(line, str_of(key)))
            continue;
        memmove(to, line.p, line.n);
        to += line.n;
        *to++ = '\n';
    }
    if (lines)
        *to = 0;
}

static int set_image(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    bool is_alias = strcmp(f->name, "images.aliases") == 0, has_eq = str_find_char(value, '=') > 0;
    bool ok = value.n > 0 && value.n <= 512 && is_alias == has_eq && value.p[value.n - 1] != '=';
    for (size_t i = 0; ok && i < value.n; i++)
        ok = value.p[i] > ' ' && value.p[i] < 0x7f;
    if (!ok)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       is_alias ? "%s: \"%.*s\" is not image=template" : "%s: \"%.*s\" is no host[:port]", f->name,
                       (int)MIN(value.n, 64), value.p);
    if (count_lines(c->builds, image_key(f)) == CONFIG_IMAGES_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d", f->name, CONFIG_IMAGES_MAX);
    add_build_line(c, is_alias ? "alias" : "insecure", value);
    return 0;
}

/* A target of a network policy: an address or a network, as a name opens none that is not public. */
static int set_webhook(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    bool ok = value.n > 0 && value.n < 64;
    for (size_t i = 0; ok && i < value.n; i++)
        ok = strchr("0123456789abcdefABCDEF.:/", value.p[i]) != NULL;
    if (!ok)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: \"%.*s\" is no address or network", f->name,
                       (int)MIN(value.n, 64), value.p);
    if (count_lines(c->builds, image_key(f)) == CONFIG_IMAGES_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d", f->name, CONFIG_IMAGES_MAX);
    add_build_line(c, "webhook", value);
    return 0;
}

static int set_mirror(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    bool ok = value.n <= 1024 && (str_starts(value, STR("http://")) || str_starts(value, STR("https://")) ||
                                  str_starts(value, STR("file:///")));
    for (size_t i = 0; ok && i < value.n; i++)
        ok = value.p[i] > ' ' && value.p[i] < 0x7f;
    if (!ok)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be an http, https or file URL", f->name);
    char **slot = config_member(c, f);
    mem_free(*slot);
    *slot = mem_strndup(value.p, value.n);
    return 0;
}

static int set_package(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    /* Debian policy 5.6.1: lower case, digits, plus, minus, point; it never begins with a minus, so it is no option either. */
    bool ok = value.n >= 2 && value.n <= 128;
    for (size_t i = 0; ok && i < value.n; i++) {
        char ch = value.p[i];
        ok = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || (i > 0 && (ch == '+' || ch == '-' || ch == '.'));
    }
    if (!ok)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: \"%.*s\" is no Debian package name", f->name,
                       (int)MIN(value.n, 64), value.p);
    if (c->n_template_packages == CONFIG_PACKAGES_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s has more than %d packages", f->name, CONFIG_PACKAGES_MAX);
    c->template_packages[c->n_template_packages++] = mem_strndup(value.p, value.n);
    return 0;
}

#define AT(m) .offset = offsetof(struct config, m)

static const struct config_field fields[] = {
    {"state_dir", "COVE_STATE", set_dir, AT(state_dir), .most = 200},
    {"run_dir", "COVE_RUN", set_dir, AT(run_dir), .most = 80},
    {"listen", "COVE_LISTEN", set_listen, .is_list = true},
    {"listen_tls", "COVE_LISTEN_TLS", set_listen_tls, .is_list = true},
    {"behind_tls_proxy", NULL, set_bool, AT(behind_tls_proxy)},
    {"domain", "COVE_DOMAIN", set_domain, AT(domain)},
    {"pool.kind", "COVE_POOL", set_pool, AT(pool_kind)},
    {"pool.size", NULL, set_size, AT(pool_bytes), .least = 2048 * MIB, .most = 1ULL << 60},
    {"disk_reserve", NULL, set_size, AT(disk_reserve_bytes), .least = MIB, .most = 1ULL << 60},
    {"owner", NULL, set_u32, AT(owner_uid), .most = UINT32_MAX - 1},
    {"group", NULL, set_group, .is_list = false},
    {"log_level", "COVE_LOG", set_level, AT(log_level)},
    {"log_format", "COVE_LOG_FORMAT", set_format, .is_list = false},
    {"defaults.memory", NULL, set_size, AT(default_memory_bytes), .least = 16 * MIB, .most = 1ULL << 50},
    {"defaults.cpus", NULL, set_cpus, AT(default_cpu_milli), .least = 10, .most = 1024000},
    {"defaults.pids", NULL, set_u32, AT(default_pids), .least = 16, .most = 4194304},
    {"defaults.disk", NULL, set_size, AT(default_disk_bytes), .least = MIB, .most = 1ULL << 50},
    {"defaults.timeout", NULL, set_duration, AT(default_timeout_ms), .least = 1000, .most = 3650 * DAY_MS},
    {"defaults.checkpoint", NULL, set_checkpoint, .most = 1000000},
    {"limits.sandboxes", NULL, set_u32, AT(max_sandboxes), .least = 1, .most = 4096},
    {"limits.timeout", NULL, set_duration, AT(max_timeout_ms), .least = 1000, .most = 3650 * DAY_MS},
    {"tiers.default", "COVE_TIER", set_tier, AT(default_tier)},
    {"tiers.minimum", NULL, set_tier, AT(minimum_tier)},
    {"tiers.allow", NULL, set_tier, .is_list = true},
    {"microvm.guest", "COVE_MICROVM_GUEST", set_dir, AT(microvm_guest), .most = 400},
    {"microvm.emulate", "COVE_MICROVM_EMULATE", set_bool, AT(microvm_emulate)},
    {"keep.events", NULL, set_u32, AT(keep_events), .least = 1000, .most = UINT32_MAX},
    {"keep.ended", NULL, set_u32, AT(keep_ended), .least = 1, .most = UINT32_MAX},
    {"keep.ended_for", NULL, set_duration, AT(keep_ended_ms), .least = 1000, .most = 3650 * DAY_MS},
    {"observe.processes", "COVE_OBSERVE_PROCESSES", set_bool, AT(observe_processes)},
    {"observe.files", "COVE_OBSERVE_FILES", set_bool, AT(observe_files)},
    {"run_code.open", "COVE_RUN_CODE_OPEN", set_bool, AT(run_code_is_open)},
    {"images.aliases", "COVE_IMAGE_ALIASES", set_image, .is_list = true},
    {"images.insecure", "COVE_IMAGE_INSECURE", set_image, .is_list = true},
    {"volumes.host", NULL, set_host_path, .is_list = true},
    {"webhooks.allow", "COVE_WEBHOOKS_ALLOW", set_webhook, .is_list = true},
    {"builds.concurrency", NULL, set_build_number, .least = 1, .most = 64},
    {"builds.step_timeout", "COVE_BUILD_STEP_TIMEOUT", set_build_number, .least = 1000, .most = 30 * DAY_MS},
    {"builds.timeout", NULL, set_build_number, .least = 1000, .most = 30 * DAY_MS},
    {"builds.disk", NULL, set_build_number, .most = 1ULL << 60},
    {"builds.allow", NULL, set_line, .is_list = true},
    {"builds.deny", NULL, set_line, .is_list = true},
    {"network.allow", NULL, set_line, .is_list = true},
    {"network.deny", NULL, set_line, .is_list = true},
    {"network.trust", NULL, set_trust, .is_list = true},
    {"mirrors.apt", NULL, set_mirror, AT(template_mirror)},
    {"mirrors.pip", NULL, set_registry, .is_list = false},
    {"mirrors.npm", NULL, set_registry, .is_list = false},
    {"mirrors.env", NULL, set_line, .is_list = true},
    {"template.mirror", NULL, set_mirror, AT(template_mirror)},
    {"template.packages", NULL, set_package, .is_list = true},
};

static bool is_section(struct str name)
{
    return str_eqc(name, "tiers") || str_eqc(name, "microvm") || str_eqc(name, "defaults") || str_eqc(name, "limits") ||
           str_eqc(name, "template") || str_eqc(name, "images") || str_eqc(name, "builds") || str_eqc(name, "pool") ||
           str_eqc(name, "keep") || str_eqc(name, "observe") || str_eqc(name, "webhooks") || str_eqc(name, "volumes") ||
           str_eqc(name, "network") || str_eqc(name, "mirrors") || str_eqc(name, "run_code");
}

static void config_forget(struct config_listen *all, size_t *n)
{
    while (*n)
        mem_free(all[--*n].text);
}

/* One key and its value, as the document walker meets them. */
static int config_apply(void *ctx, const char *key, struct str value, bool first, bool in_list, struct err *err)
{
    struct config *c = ctx;
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        const struct config_field *f = &fields[i];
        if (strcmp(f->name, key) != 0)
            continue;
        if (in_list && !f->is_list)
            return err_set(err, ERR_INVALID_ARGUMENT, "%s takes one value, not a list", key);
        if (first && f->set == set_listen)
            config_forget(c->listen, &c->n_listen);
        if (first && f->set == set_listen_tls)
            config_forget(c->listen_tls, &c->n_listen_tls);
        if (first && (f->set == set_image || f->set == set_webhook))
            forget_lines(c->builds, image_key(f));
        return f->set(c, f, value, err);
    }
    return err_set(err, ERR_INVALID_ARGUMENT, "unknown key \"%s\"", key);
}

static struct config *config_new(void)
{
    struct config *c = mem_new(struct config);
    struct err err;
    c->state_dir = mem_strdup("/var/lib/cove");
    c->microvm_guest = mem_strdup("/usr/share/cove/guest");
    c->run_dir = mem_strdup("/run/cove");
    c->log_level = LOG_INFO;
    c->disk_reserve_bytes = CONFIG_RESERVE_AUTO;
    c->default_memory_bytes = 512 * MIB;
    c->default_disk_bytes = CONFIG_DISK_AUTO;
    c->default_cpu_milli = 2000;
    c->default_pids = 1024;
    c->default_timeout_ms = 300000;
    c->max_sandboxes = 1000;
    c->max_timeout_ms = DAY_MS;
    int r = config_listen_parse(STR("127.0.0.1:7070"), &c->listen[0], &err);
    assert(r == 0);
    r = config_listen_parse(STR("127.0.0.1:7443"), &c->listen_tls[0], &err);
    assert(r == 0);
    (void)r;
    c->n_listen = c->n_listen_tls = 1;
    return c;
}

void config_free(struct config *c)
{
    if (!c)
        return;
    mem_free(c->state_dir);
    mem_free(c->run_dir);
    mem_free(c->domain);
    mem_free(c->builds);
    mem_free(c->template_mirror);
    config_forget(c->listen, &c->n_listen);
    config_forget(c->listen_tls, &c->n_listen_tls);
    for (size_t i = 0; i < c->n_template_packages; i++)
        mem_free(c->template_packages[i]);
    for (size_t i = 0; i < c->n_tiers; i++)
        mem_free(c->tiers[i]);
    mem_free(c->default_tier);
    mem_free(c->microvm_guest);
    mem_free(c->minimum_tier);
    for (size_t i = 0; i < c->n_trust_paths; i++)
        mem_free(c->trust_paths[i]);
    mem_free(c->group);
    for (size_t i = 0; i < c->n_host_paths; i++)
        mem_free(c->host_paths[i]);
    mem_free(c->trust);
    mem_free(c);
}

static int check_whole(const struct config *c, struct err *err)
{
    if (c->default_timeout_ms > c->max_timeout_ms)
        return err_set(err, ERR_INVALID_ARGUMENT, "defaults.timeout is larger than limits.timeout");
    return 0;
}

int config_parse(const char *name, struct str text, struct config **ret_config, struct err *err)
{
    AUTO(config_free) struct config *c = config_new();
    if (document_walk(name, text, is_section, config_apply, c, err) < 0)
        return -1;
    if (check_whole(c, err) < 0)
        return err_prefix(err, "%s", name);
    *ret_config = TAKE_PTR(c);
    return 0;
}

/* Environment beats file. Lists are separated by commas. */
static int apply_env(struct config *c, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        const char *value = fields[i].env ? getenv(fields[i].env) : NULL;
        if (!value || !*value)
            continue;
        struct str rest = str_of(value), part = rest;
        bool first = true;
        while (!fields[i].is_list || str_split(&rest, ',', &part)) {
            if (config_apply(c, fields[i].name, str_trim(part), first, fields[i].is_list, err) < 0)
                return err_prefix(err, "environment variable %s", fields[i].env);
            first = false;
            if (!fields[i].is_list)
                break;
        }
    }
    return 0;
}

const char *config_path(bool *ret_may_be_missing)
{
    const char *path = getenv("COVE_CONFIG");
    *ret_may_be_missing = !path || !*path;
    return *ret_may_be_missing ? CONFIG_DEFAULT_PATH : path;
}

int config_load(const char *path, struct config **ret_config, struct err *err)
{
    bool may_be_missing = false;
    path = path ? path : config_path(&may_be_missing);

    AUTO_BUF struct buf text = BUF_INIT(CONFIG_FILE_MAX);
    int r = fd_read_file(AT_FDCWD, path, &text);
    if (r == -ENOBUFS)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s is larger than %d KiB", path, CONFIG_FILE_MAX / 1024);
    if (r < 0 && !(r == -ENOENT && may_be_missing))
        return err_errno(err, r, "read the configuration %s", path);

    AUTO(config_free) struct config *c = NULL;
    if (config_parse(path, buf_str(&text), &c, err) < 0 || apply_env(c, err) < 0)
        return -1;
    *ret_config = TAKE_PTR(c);
    return 0;
}
