/* SPDX-License-Identifier: Apache-2.0 */
/* Making a sandbox: what the request's body says, as the core wants to know it. */
#include "api/kit/json_read.h"
#include "api/native/handlers.h"
#include "guard/rules.h"
#include "sandbox/network/network.h"
#include "sandbox/volume/volumes.h"

#include <sched.h>
#include <sys/sysinfo.h>

/* At once, what is not found is the template. */
static void native_create_refuse(struct call *c, const struct err *err)
{
    call_fail_hint(c, err, err->code == ERR_NOT_FOUND ? CALL_HINT_TEMPLATE : NULL);
}

/* "network" is a policy, "internet" the short form of one. */
static int create_read_network(const json_t *body, struct sandbox_spec *spec, struct network_spec *network,
                               struct err *err)
{
    json_t *policy = NULL;
    if (json_is_null(json_object_get(body, "network")) || json_is_null(json_object_get(body, "internet")))
        return err_set(err, ERR_INVALID_ARGUMENT, "\"network\" and \"internet\" can't be null: leave them out");
    int r = json_get_object(body, "network", &policy, err);
    if (r <= 0)
        return r;
    if (json_field(body, "internet"))
        return err_set(err, ERR_INVALID_ARGUMENT, "\"internet\" and \"network\" exclude each other");
    *network = (struct network_spec){.policy = policy};
    const char *otherwise = json_string_value(json_object_get(policy, "default"));
    network->allow_internet = spec->allow_internet = otherwise && strcmp(otherwise, "allow") == 0;
    spec->network = network;
    return 0;
}

static const double GIB = 1 << 30;

/* What the kernel would take and never give. */
static int check_machine(const struct sandbox_spec *spec, struct err *err)
{
    struct sysinfo machine;
    cpu_set_t cpus;
    if (sysinfo(&machine) == 0 && spec->memory_bytes / machine.mem_unit > machine.totalram)
        return err_set(err, ERR_INVALID_ARGUMENT, "%.1f GiB of memory are more than this machine has: %.1f GiB",
                       (double)spec->memory_bytes / GIB, (double)machine.totalram * machine.mem_unit / GIB);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && spec->cpu_milli > (uint32_t)CPU_COUNT(&cpus) * 1000)
        return err_set(err, ERR_INVALID_ARGUMENT, "%g CPUs are more than this machine has: %d",
                       (double)spec->cpu_milli / 1000, CPU_COUNT(&cpus));
    return 0;
}

/* [{"name":…,"path":…,"read_only":…,"host":…}]; what a volume's name and path may be is the core's to say. */
static int read_volumes(const json_t *body, struct arena *arena, struct sandbox_spec *spec, struct err *err)
{
    json_t *list = NULL;
    if (json_get_array(body, "volumes", &list, err) < 0)
        return -1;
    if (json_array_size(list) > VOLUME_MOUNTS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "a sandbox has at most %d volumes", VOLUME_MOUNTS_MAX);
    struct volume_mount *mounts = arena_alloc(arena, (json_array_size(list) + 1) * sizeof(*mounts));
    JSON_FOREACH_AT (i, one, list) {
        struct volume_mount *m = &mounts[i];
        *m = (struct volume_mount){.name = STR_NULL};
        if (!json_is_object(one))
            return err_set(err, ERR_INVALID_ARGUMENT, "\"volumes\" must be a list of objects");
        if (JSON_WANTS(one, arena, err, JSON_NEED_STR("name", &m->name), JSON_NEED_STR("path", &m->path),
                       JSON_WANT_BOOL("read_only", &m->read_only), JSON_WANT_BOOL("host", &m->is_host)) < 0)
            return err_prefix(err, "volumes");
    }
    spec->mounts = mounts;
    spec->n_mounts = json_array_size(list);
    return 0;
}

/* What happens at the end of its time, and after that. */
static int read_lifecycle(const json_t *body, struct sandbox_spec *spec, struct err *err)
{
    struct str on_timeout = STR("kill");
    bool keeps_memory = true;
    if (json_get_str(body, "on_timeout", &on_timeout, err) < 0 ||
        json_get_bool(body, "pause_memory", &keeps_memory, err) < 0 ||
        json_get_bool(body, "auto_resume", &spec->auto_resume, err) < 0)
        return -1;
    spec->pause_on_timeout = str_eqc(on_timeout, "pause");
    spec->pause_files_only = !keeps_memory;
    if (!spec->pause_on_timeout && !str_eqc(on_timeout, "kill"))
        return err_set(err, ERR_INVALID_ARGUMENT, "\"on_timeout\" must be \"kill\" or \"pause\"");
    if (spec->pause_files_only && !spec->pause_on_timeout)
        return err_set(err, ERR_INVALID_ARGUMENT, "\"pause_memory\" needs \"on_timeout\":\"pause\"");
    if (spec->pause_files_only && spec->auto_resume)
        return err_set(err, ERR_INVALID_ARGUMENT, "without its memory a sandbox is not resumed by traffic");
    return 0;
}

static int read_checkpoint(const json_t *body, struct sandbox_spec *spec, struct err *err)
{
    const json_t *value = json_object_get(body, "checkpoint");
    const char *word = json_string_value(value);
    json_int_t n = json_integer_value(value);
    if (n >= 1 && n <= CHECKPOINT_EACH_MAX)
        spec->checkpoint = (int)n;
    else if (value && (!word || checkpoint_mode_parse(str_of(word), &spec->checkpoint) < 0))
        return err_set(err, ERR_INVALID_ARGUMENT, "\"checkpoint\" is " CHECKPOINT_WORDS);
    return 0;
}

static int create_read_spec(struct call *c, struct sandbox_spec *spec, struct network_spec *network, struct err *err)
{
    int64_t memory = 0, cpu = 0, disk = 0, timeout = (int64_t)native_of(c)->config.default_timeout_ms;
    struct arena *arena = http_arena(c->req);
    bool goes_on = true;
    spec->template_ref = STR("base");
    spec->allow_internet = true;
    spec->secure = true;
    if (JSON_WANTS(c->body, arena, err, JSON_WANT_STR("template", &spec->template_ref),
                   JSON_WANT_INT("memory_bytes", 0, INT64_MAX, &memory), JSON_WANT_INT("cpu_milli", 0, INT32_MAX, &cpu),
                   JSON_WANT_INT("disk_bytes", 0, INT64_MAX, &disk), JSON_WANT_STR("tier", &spec->tier),
                   JSON_WANT_INT("timeout_ms", 0, INT64_MAX, &timeout),
                   JSON_WANT_PAIRS("env", &spec->envs, &spec->n_envs),
                   JSON_WANT_PAIRS("metadata", &spec->metadata, &spec->n_metadata),
                   JSON_WANT_BOOL("internet", &spec->allow_internet), JSON_WANT_BOOL("secure", &spec->secure),
                   JSON_WANT_ANY("network"), JSON_WANT_ANY("volumes"), JSON_WANT_ANY("on_timeout"),
                   JSON_WANT_ANY("auto_resume"), JSON_WANT_ANY("pause_memory"), JSON_WANT_ANY("checkpoint"),
                   JSON_WANT_BOOL("memory", &goes_on)) < 0 ||
        create_read_network(c->body, spec, network, err) < 0 || read_volumes(c->body, arena, spec, err) < 0 ||
        read_lifecycle(c->body, spec, err) < 0 || read_checkpoint(c->body, spec, err) < 0)
        return -1;
    spec->is_cold = !goes_on;
    spec->memory_bytes = (uint64_t)memory;
    spec->cpu_milli = (uint32_t)cpu;
    spec->timeout_ms = (uint64_t)timeout;
    spec->disk_bytes = (uint64_t)disk;
    return check_machine(spec, err);
}

void native_sandboxes_create(struct call *c)
{
    struct sandbox_spec spec = {0};
    struct network_spec network;
    struct err err;
    if (!call_ok(c, create_read_spec(c, &spec, &network, &c->err)))
        return;
    for (size_t i = 0; i < spec.n_mounts; i++) {
        if (spec.mounts[i].is_host || volume_find(call_core(c), c->actor.who.view, spec.mounts[i].name))
            continue;
        (void)err_set(&err, ERR_NOT_FOUND, "there is no volume '%.*s'", (int)MIN(spec.mounts[i].name.n, (size_t)64),
                      spec.mounts[i].name.p);
        call_fail_hint(c, &err, "'cove volume create' makes one, 'cove volume ls' lists those there are");
        return;
    }
    if (sandbox_create(call_core(c), &c->actor, &spec, native_on_sandbox, call_hold(c), &err) == 0)
        return;
    native_create_refuse(c, &err);
    call_unref(c);
}
