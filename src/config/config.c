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
#include <stdlib.h>

#define MIB (1024ULL * 1024)
#define DAY_MS (86400ULL * 1000)

struct config_field;
struct config_unit;

/* A setter gets one scalar (lists: one for each item) and says in *err what is wrong with it, without file and line. */
typedef int (*set_fn)(struct config *c, const struct config_field *f, struct str value, struct err *err);

struct config_field {
    const char *name; /* with its section: "defaults.memory" */
    const char *env;
    set_fn set;
    bool is_list; /* a scalar counts as a list of one */
    size_t offset;
    uint64_t least, most;
    const struct config_unit *unit; /* of a number */
    const char *line;               /* what cove-api is told: its key there (add_build_line()) */
};

static void *config_member(struct config *c, const struct config_field *f)
{
    return (char *)c + f->offset;
}

/* ---- numbers ---- */

struct config_unit {
    const char *what;
    int (*parse)(struct str s, uint64_t *ret_value);
    void (*format)(uint64_t number, char ret_text[static UNIT_TEXT_MAX]);
    bool is_32, may_be_zero; /* how the member holds it; 0 is not `least`, but none */
};

static void format_number(uint64_t number, char ret_text[static UNIT_TEXT_MAX])
{
    (void)snprintf(ret_text, UNIT_TEXT_MAX, "%llu", (unsigned long long)number);
}

static int parse_cpus(struct str s, uint64_t *ret_milli)
{
    uint32_t milli;
    int r = unit_parse_cpus(s, &milli);
    if (r == 0)
        *ret_milli = milli;
    return r;
}

static void format_cpus(uint64_t milli, char ret_text[static UNIT_TEXT_MAX])
{
    (void)snprintf(ret_text, UNIT_TEXT_MAX, "%g", (double)milli / 1000);
}

static const struct config_unit number_unit = {"whole number", str_to_u64, format_number, .is_32 = true};
static const struct config_unit cpus_unit = {"number such as 1.5", parse_cpus, format_cpus, .is_32 = true,
                                             .may_be_zero = true};
static const struct config_unit size_unit = {"size such as 10GiB", unit_parse_size, unit_format_size,
                                             .may_be_zero = true};
static const struct config_unit duration_unit = {"duration such as 5m", unit_parse_duration, unit_format_duration,
                                                 .is_32 = false};

/* What only cove-api looks at goes there as a line of its own; a later one of the same key counts. */
static void add_build_line(struct config *c, const char *key, struct str value)
{
    char *all = mem_printf("%s%s=%.*s\n", c->builds ? c->builds : "", key, STR_ARG(value));
    mem_free(c->builds);
    c->builds = all;
}

static int set_number(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    char text[UNIT_TEXT_MAX];
    uint64_t n;
    if (f->unit->parse(value, &n) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a %s", f->name, f->unit->what);
    if ((n < f->least || n > f->most) && !(n == 0 && f->unit->may_be_zero)) {
        f->unit->format(n < f->least ? f->least : f->most, text);
        return err_set(err, ERR_INVALID_ARGUMENT, "%s is out of range: %s at %s", f->name, text,
                       n < f->least ? "least" : "most");
    }
    format_number(n, text);
    if (f->line)
        add_build_line(c, f->line, str_of(text));
    else if (f->unit->is_32)
        *(uint32_t *)config_member(c, f) = (uint32_t)n;
    else
        *(uint64_t *)config_member(c, f) = n;
    return 0;
}

/* ---- texts and lists ---- */

static int config_put(char **slot, struct str value)
{
    mem_free(*slot);
    *slot = mem_strndup(value.p, value.n);
    return 0;
}

static int config_add(char **all, size_t *n, size_t most, const struct config_field *f, struct str value,
                      struct err *err)
{
    if (*n == most)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %zu", f->name, most);
    return config_put(&all[(*n)++], value);
}

static bool config_is_plain(struct str value, size_t most)
{
    return value.n > 0 && value.n <= most && str_is_of(value, "!-~");
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
    return config_put(slot, str_of(path));
}

static int set_listen(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    bool is_tls = strcmp(f->name, "listen_tls") == 0;
    size_t *n = is_tls ? &c->n_listen_tls : &c->n_listen;
    if (*n == CONFIG_LISTEN_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s has more than %d addresses", f->name, CONFIG_LISTEN_MAX);
    if (config_listen_parse(value, &(is_tls ? c->listen_tls : c->listen)[*n], err) < 0)
        return -1;
    ++*n;
    c->asks_for_tls = c->asks_for_tls || is_tls;
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
    if (!ok || !str_is_of(value, "a-z0-9.-") || memmem(value.p, value.n, "..", 2))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a host name in lower case, without port", f->name);
    return config_put(config_member(c, f), value);
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
    const int level = str_word(value, "debug info warn error");
    if (level < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be debug, info, warn or error", f->name);
    *(enum log_level *)config_member(c, f) = (enum log_level)level;
    return 0;
}

static int set_format(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (!str_eqc(value, "text") && !str_eqc(value, "json"))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be text or json", f->name);
    c->log_is_json = str_eqc(value, "json");
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
    bool is_env = strcmp(f->name, "mirrors.env") == 0;
    if (!config_is_plain(value, 1024) || (is_env && str_find_char(value, '=') <= 0))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: \"%.*s\" is %s", f->name, STR_ARG_MAX(value, 64),
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
    if (value.n == 0 || value.n >= 16 || !str_is_of(value, "a-z"))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: \"%.*s\" is not the name of a tier", f->name,
                       STR_ARG_MAX(value, 64));
    return f->is_list ? config_add(c->tiers, &c->n_tiers, ARRAY_SIZE(c->tiers), f, value, err)
                      : config_put(config_member(c, f), value);
}

static int set_trust(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (!value.n || value.p[0] != '/' || str_has_nul(value))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be an absolute path", f->name);
    return config_add(c->trust_paths, &c->n_trust_paths, ARRAY_SIZE(c->trust_paths), f, value, err);
}

/* A name that isn't there, or a number. */
static int set_group(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (!value.n || value.n > 64 || str_has_nul(value))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be the name or number of a group", f->name);
    return config_put(&c->group, value);
}

static gid_t group_of(const struct config *c)
{
    const char *name = c->group ? c->group : "cove";
    const struct group *entry = getgrnam(name);
    uint64_t number;
    if (!entry && c->group && str_to_u64(str_of(name), &number) == 0 && number > 0 && number < UINT32_MAX)
        return (gid_t)number;
    return entry && entry->gr_gid ? entry->gr_gid : (gid_t)-1;
}

static int config_check_path(const struct config_field *f, struct str value, struct err *err)
{
    char clean[PATH_TEXT_MAX];
    if (value.n < 2 || value.p[0] != '/' || str_has_nul(value) || path_clean(value, clean) < 0 ||
        !str_eqc(value, clean))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be an absolute, clean path, and not all of the host",
                       f->name);
    return 0;
}

/* Where sockets and what isn't files are. */
static int set_shown_path(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    static const char *const never[] = {"/dev", "/proc", "/run", "/sys", "/tmp", "/var"};
    for (size_t i = 0; i < ARRAY_SIZE(never); i++)
        if (path_is_below(value, str_of(never[i])))
            return err_set(err, ERR_INVALID_ARGUMENT, "%s: nothing of %s can be shown", f->name, never[i]);
    return config_check_path(f, value, err) < 0
               ? -1
               : config_add(c->process_paths, &c->n_process_paths, ARRAY_SIZE(c->process_paths), f, value, err);
}

static int set_host_path(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    return config_check_path(f, value, err) < 0
               ? -1
               : config_add(c->host_paths, &c->n_host_paths, ARRAY_SIZE(c->host_paths), f, value, err);
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
    if (!config_is_plain(value, 512) || is_alias != has_eq || value.p[value.n - 1] == '=')
        return err_set(err, ERR_INVALID_ARGUMENT,
                       is_alias ? "%s: \"%.*s\" is not image=template" : "%s: \"%.*s\" is not host[:port]", f->name,
                       STR_ARG_MAX(value, 64));
    if (count_lines(c->builds, image_key(f)) == CONFIG_IMAGES_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d", f->name, CONFIG_IMAGES_MAX);
    add_build_line(c, is_alias ? "alias" : "insecure", value);
    return 0;
}

/* A target of a network policy: an address or a network, as a name opens none that is not public. */
static int set_webhook(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (!value.n || value.n >= 64 || !str_is_of(value, "0-9a-fA-F.:/"))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: \"%.*s\" is not an address or network", f->name,
                       STR_ARG_MAX(value, 64));
    if (count_lines(c->builds, image_key(f)) == CONFIG_IMAGES_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d", f->name, CONFIG_IMAGES_MAX);
    add_build_line(c, "webhook", value);
    return 0;
}

static int set_mirror(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    if (!config_is_plain(value, 1024) || !(str_starts(value, STR("http://")) || str_starts(value, STR("https://")) ||
                                           str_starts(value, STR("file:///"))))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be an http, https or file URL", f->name);
    return config_put(config_member(c, f), value);
}

static int set_package(struct config *c, const struct config_field *f, struct str value, struct err *err)
{
    /* Debian policy 5.6.1: lower case, digits, plus, minus, point; it never begins with a minus, so it is no option
     * either. */
    if (value.n < 2 || value.n > 128 || !str_is_of(value, "a-z0-9+.-") || strchr("+.-", value.p[0]))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: \"%.*s\" is not the name of a Debian package", f->name,
                       STR_ARG_MAX(value, 64));
    return config_add(c->template_packages, &c->n_template_packages, CONFIG_PACKAGES_MAX, f, value, err);
}

#define AT(m) .offset = offsetof(struct config, m)

static const struct config_field fields[] = {
    {"state_dir", "COVE_STATE", set_dir, AT(state_dir), .most = 200},
    {"run_dir", "COVE_RUN", set_dir, AT(run_dir), .most = 80},
    {"listen", "COVE_LISTEN", set_listen, .is_list = true},
    {"listen_tls", "COVE_LISTEN_TLS", set_listen, .is_list = true},
    {"behind_tls_proxy", NULL, set_bool, AT(behind_tls_proxy)},
    {"domain", "COVE_DOMAIN", set_domain, AT(domain)},
    {"pool.kind", "COVE_POOL", set_pool, AT(pool_kind)},
    {"pool.size", NULL, set_number, AT(pool_bytes), .unit = &size_unit, .least = 2048 * MIB, .most = 1ULL << 60},
    {"disk_reserve", NULL, set_number, AT(disk_reserve_bytes), .unit = &size_unit, .least = MIB, .most = 1ULL << 60},
    {"owner", NULL, set_number, AT(owner_uid), .unit = &number_unit, .most = UINT32_MAX - 1},
    {"group", NULL, set_group, .is_list = false},
    {"log_level", "COVE_LOG", set_level, AT(log_level)},
    {"log_format", "COVE_LOG_FORMAT", set_format, .is_list = false},
    {"defaults.memory", NULL, set_number, AT(default_memory_bytes), .unit = &size_unit, .least = 16 * MIB,
     .most = 1ULL << 50},
    {"defaults.cpus", NULL, set_number, AT(default_cpu_milli), .unit = &cpus_unit, .least = 10, .most = 1024000},
    {"defaults.pids", NULL, set_number, AT(default_pids), .unit = &number_unit, .least = 16, .most = 4194304},
    {"defaults.disk", NULL, set_number, AT(default_disk_bytes), .unit = &size_unit, .least = MIB, .most = 1ULL << 50},
    {"defaults.timeout", NULL, set_number, AT(default_timeout_ms), .unit = &duration_unit, .least = 1000,
     .most = 3650 * DAY_MS},
    {"defaults.checkpoint", NULL, set_checkpoint, .most = 1000000},
    {"limits.sandboxes", NULL, set_number, AT(max_sandboxes), .unit = &number_unit, .least = 1, .most = 4096},
    {"limits.timeout", NULL, set_number, AT(max_timeout_ms), .unit = &duration_unit, .least = 1000,
     .most = 3650 * DAY_MS},
    {"tiers.default", "COVE_TIER", set_tier, AT(default_tier)},
    {"tiers.minimum", NULL, set_tier, AT(minimum_tier)},
    {"tiers.allow", NULL, set_tier, .is_list = true},
    {"tiers.process", "COVE_TIER_PROCESS", set_shown_path, .is_list = true},
    {"microvm.guest", "COVE_MICROVM_GUEST", set_dir, AT(microvm_guest), .most = 400},
    {"microvm.emulate", "COVE_MICROVM_EMULATE", set_bool, AT(microvm_emulate)},
    {"keep.events", NULL, set_number, AT(keep_events), .unit = &number_unit, .least = 1000, .most = UINT32_MAX},
    {"keep.ended", NULL, set_number, AT(keep_ended), .unit = &number_unit, .least = 1, .most = UINT32_MAX},
    {"keep.ended_for", NULL, set_number, AT(keep_ended_ms), .unit = &duration_unit, .least = 1000,
     .most = 3650 * DAY_MS},
    {"observe.processes", "COVE_OBSERVE_PROCESSES", set_bool, AT(observe_processes)},
    {"observe.files", "COVE_OBSERVE_FILES", set_bool, AT(observe_files)},
    {"run_code.open", "COVE_RUN_CODE_OPEN", set_bool, AT(run_code_is_open)},
    {"images.aliases", "COVE_IMAGE_ALIASES", set_image, .is_list = true},
    {"images.insecure", "COVE_IMAGE_INSECURE", set_image, .is_list = true},
    {"volumes.host", NULL, set_host_path, .is_list = true},
    {"webhooks.allow", "COVE_WEBHOOKS_ALLOW", set_webhook, .is_list = true},
    {"builds.concurrency", NULL, set_number, .line = "concurrency", .unit = &number_unit, .least = 1, .most = 64},
    {"builds.step_timeout", "COVE_BUILD_STEP_TIMEOUT", set_number, .line = "step-timeout-ms", .unit = &duration_unit,
     .least = 1000, .most = 30 * DAY_MS},
    {"builds.timeout", NULL, set_number, .line = "timeout-ms", .unit = &duration_unit, .least = 1000,
     .most = 30 * DAY_MS},
    {"builds.disk", NULL, set_number, .line = "disk", .unit = &size_unit, .most = 1ULL << 60},
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

/* Is there a field in it? */
static bool is_section(struct str name)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (strncmp(fields[i].name, name.p, name.n) == 0 && fields[i].name[name.n] == '.')
            return true;
    return false;
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
        if (first && strcmp(key, "listen") == 0)
            config_forget(c->listen, &c->n_listen);
        if (first && strcmp(key, "listen_tls") == 0)
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
    c->group_gid = (gid_t)-1;
    c->disk_reserve_bytes = CONFIG_RESERVE_AUTO;
    c->default_memory_bytes = 512 * MIB;
    c->default_disk_bytes = CONFIG_DISK_AUTO;
    c->default_cpu_milli = 2000;
    c->default_pids = 1024;
    c->default_timeout_ms = 300000;
    c->observe_processes = c->observe_files = true;
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
    MEM_FREE(c->state_dir, c->run_dir, c->domain, c->builds, c->template_mirror);
    config_forget(c->listen, &c->n_listen);
    config_forget(c->listen_tls, &c->n_listen_tls);
    for (size_t i = 0; i < c->n_template_packages; i++)
        mem_free(c->template_packages[i]);
    for (size_t i = 0; i < c->n_tiers; i++)
        mem_free(c->tiers[i]);
    MEM_FREE(c->default_tier, c->microvm_guest, c->minimum_tier);
    for (size_t i = 0; i < c->n_trust_paths; i++)
        mem_free(c->trust_paths[i]);
    mem_free(c->group);
    for (size_t i = 0; i < c->n_process_paths; i++)
        mem_free(c->process_paths[i]);
    for (size_t i = 0; i < c->n_host_paths; i++)
        mem_free(c->host_paths[i]);
    MEM_FREE(c->trust, c);
}

static int check_whole(const struct config *c, struct err *err)
{
    if (c->default_timeout_ms > c->max_timeout_ms)
        return err_set(err, ERR_INVALID_ARGUMENT, "defaults.timeout is larger than limits.timeout");
    for (size_t i = 0; i < c->n_process_paths; i++)
        if (path_is_below(str_of(c->state_dir), str_of(c->process_paths[i])) ||
            path_is_below(str_of(c->run_dir), str_of(c->process_paths[i])))
            return err_set(err, ERR_INVALID_ARGUMENT, "tiers.process: %s has directories of the service's",
                           c->process_paths[i]);
    return 0;
}

int config_parse(const char *name, struct str text, struct config **ret_config, struct err *err)
{
    AUTO(config_free) struct config *c = config_new();
    if (document_walk(name, text, is_section, config_apply, c, err) < 0)
        return -1;
    if (check_whole(c, err) < 0) {
        (void)err_prefix(err, "%s", name);
        return -1;
    }
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
    if (config_parse(path, buf_str(&text), &c, err) < 0 || apply_env(c, err) < 0 || check_whole(c, err) < 0)
        return -1;
    c->group_gid = group_of(c);
    *ret_config = TAKE_PTR(c);
    return 0;
}
