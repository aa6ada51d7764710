/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a container: the request of docker create as a sandbox.
 *
 * Each member of the request that may ask for something stands in one of the tables below. One that doesn't must ask
 * for nothing (be absent, null, false, 0, empty): what would change the boundary, or is not here, is refused by its
 * name and never left out.
 */
#include "api/docker/handlers.h"
#include "base/mem.h"
#include "sandbox/network/network.h"

#include <ctype.h>

/* ---- members ---- */

/* Nothing, but for texts that are one of these words. */
static bool create_asks_for(const json_t *value, const char *words)
{
    struct str rest = str_of(words), word;
    JSON_FOREACH_MEMBER (name, one, value)
        if (!create_asks_for(one, words))
            return false;
    JSON_FOREACH (one, value)
        if (!create_asks_for(one, words))
            return false;
    bool is_known = !json_string_length(value);
    while (!is_known && str_split(&rest, ' ', &word))
        is_known = str_eqc(word, json_string_value(value));
    return is_known && !json_is_true(value) && json_number_value(value) == 0;
}

int docker_members(const json_t *object, const char *where, const char *known, const struct docker_member *members,
                   size_t n, struct err *err)
{
    JSON_FOREACH_MEMBER (name, value, object) {
        const char *words = str_word(str_of(name), known) >= 0 ? NULL : "";
        bool is_port = strcmp(name, "PortBindings") == 0 || strcmp(name, "PublishAllPorts") == 0;
        for (size_t i = 0; i < n; i++)
            words = strcmp(members[i].name, name) == 0 ? members[i].words : words;
        if (words && !create_asks_for(value, words))
            return err_set(err, ERR_INVALID_ARGUMENT, "%s%.64s%s%.100s is not supported%s", where, name,
                           json_is_string(value) ? " " : "", json_is_string(value) ? json_string_value(value) : "",
                           is_port ? ": 'cove url NAME PORT' prints the address of any port inside" : "");
    }
    return 0;
}

int docker_strings(struct arena *arena, const json_t *value, const char *name, const struct str **ret_items,
                   size_t *ret_n, struct err *err)
{
    size_t n = json_is_array(value) ? json_array_size(value) : json_is_string(value);
    struct str *all = arena_alloc(arena, (n + 1) * sizeof(*all));
    if (value && !json_is_null(value) && !json_is_array(value) && !json_is_string(value))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a list of strings", name);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_string(one))
            return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a list of strings", name);
        all[i] = str_n(json_string_value(one), json_string_length(one));
    }
    *ret_items = all;
    *ret_n = n;
    return 0;
}

int docker_env(struct arena *arena, const json_t *value, const struct pair **ret_envs, size_t *ret_n, struct err *err)
{
    const struct str *words = NULL;
    size_t n = 0;
    if (docker_strings(arena, value, "Env", &words, &n, err) < 0)
        return -1;
    struct pair *envs = arena_alloc(arena, (n + 1) * sizeof(*envs));
    for (size_t i = 0; i < n; i++) {
        ssize_t at = str_find_char(words[i], '=');
        if (at <= 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "Env: write NAME=value");
        envs[i] = (struct pair){str_n(words[i].p, (size_t)at), str_sub(words[i], (size_t)at + 1)};
    }
    *ret_envs = envs;
    *ret_n = n;
    return 0;
}

/* ---- of the host's side ---- */

static int create_mount(struct docker_making *m, const struct volume_mount *mount, struct err *err)
{
    if (m->spec.n_mounts == VOLUME_MOUNTS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "more than %d mounts", VOLUME_MOUNTS_MAX);
    m->mounts[m->spec.n_mounts++] = *mount;
    m->mounts[m->spec.n_mounts - 1].is_host = str_starts(mount->name, STR("/"));
    return 0;
}

static int create_read_bind(struct docker_making *m, struct str text, struct err *err)
{
    struct volume_mount mount = {0};
    struct str rest = text, option;
    bool is_whole = str_split(&rest, ':', &mount.name) && str_split(&rest, ':', &mount.path);
    while (is_whole && rest.n && str_split(&rest, ',', &option)) {
        mount.read_only = mount.read_only || str_eqc(option, "ro");
        is_whole = str_eqc(option, "ro") || str_eqc(option, "rw") || str_eqc(option, "z") || str_eqc(option, "Z");
    }
    if (!is_whole)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "HostConfig.Binds %.*s is not supported: write FROM:/TO, with :ro or :rw behind it",
                       (int)MIN(text.n, (size_t)200), text.p);
    return create_mount(m, &mount, err);
}

static int create_read_mount(struct docker_making *m, const json_t *one, struct err *err)
{
    static const struct docker_member type_member = {"Type", "bind volume"};
    struct volume_mount mount = {0};
    struct str type = STR("");
    if (docker_members(one, "HostConfig.Mounts.", "Source Target ReadOnly Consistency", &type_member, 1, err) < 0 ||
        JSON_WANTS_OF(one, m->arena, err, JSON_NEED_STR("Type", &type), JSON_NEED_STR("Source", &mount.name),
                      JSON_NEED_STR("Target", &mount.path), JSON_WANT_BOOL("ReadOnly", &mount.read_only)) < 0)
        return -1;
    if (str_eqc(type, "bind") != str_starts(mount.name, STR("/")))
        return err_set(err, ERR_INVALID_ARGUMENT, "HostConfig.Mounts: a path of the host is the Source of bind alone");
    return create_mount(m, &mount, err);
}

static int create_read_mounts(struct docker_making *m, const json_t *host, struct err *err)
{
    const struct str *binds = NULL;
    json_t *mounts = NULL;
    size_t n = 0, i;
    if (JSON_WANTS_OF(host, m->arena, err, JSON_WANT_STRS("Binds", &binds, &n), JSON_WANT_ARRAY("Mounts", &mounts)) < 0)
        return -1;
    for (i = 0; binds && i < n; i++)
        if (create_read_bind(m, binds[i], err) < 0)
            return -1;
    JSON_FOREACH (one, mounts)
        if (create_read_mount(m, one, err) < 0)
            return -1;
    return 0;
}

static int create_read_limits(struct docker_making *m, const json_t *host, struct err *err)
{
    int64_t memory = 0, nano = 0, quota = 0, period = 100000;
    if (JSON_WANTS_OF(host, m->arena, err, JSON_WANT_INT("Memory", 0, INT64_MAX, &memory),
                      JSON_WANT_INT("NanoCpus", 0, (int64_t)INT32_MAX * 1000000, &nano),
                      JSON_WANT_INT("CpuQuota", -1, INT32_MAX, &quota),
                      JSON_WANT_INT("CpuPeriod", 0, INT32_MAX, &period)) < 0)
        return -1;
    m->spec.memory_bytes = (uint64_t)memory;
    m->spec.cpu_milli = (uint32_t)(nano        ? nano / 1000000
                                   : quota > 0 ? MIN(quota * 1000 / MAX(period, 1), INT32_MAX)
                                               : 0);
    return 0;
}

#define NETWORKS "default bridge none"

static int create_read_host(struct docker_making *m, json_t *host, json_t *networking, struct err *err)
{
    static const char known[] =
        "AutoRemove Binds CapDrop ConsoleSize CpuPeriod CpuQuota CpuShares Init LogConfig Memory "
        "MemoryReservation MemorySwap MemorySwappiness Mounts NanoCpus ShmSize";
    static const struct docker_member members[] = {
        {"CgroupnsMode", "private"},
        {"ExtraHosts", "host.docker.internal:host-gateway"}, /* as in `cove docker`: where nothing leads */
        {"IpcMode", "private"},
        {"NetworkMode", NETWORKS},
        {"RestartPolicy", "no"},
        {"Runtime", "runc runsc"},
        {"SecurityOpt", "no-new-privileges no-new-privileges:true no-new-privileges=true"},
    };
    struct str network = STR(""), runtime = STR("");
    json_t *ends = json_object_get(networking, "EndpointsConfig");
    JSON_FOREACH_MEMBER (name, one, ends) {
        json_t *text AUTO_JSON = json_string(name);
        if (!create_asks_for(text, NETWORKS) || !create_asks_for(one, NETWORKS))
            return err_set(err, ERR_INVALID_ARGUMENT, "NetworkingConfig: network %.64s is not supported", name);
    }
    if (docker_members(host, "HostConfig.", known, members, ARRAY_SIZE(members), err) < 0 ||
        JSON_WANTS_OF(host, m->arena, err, JSON_WANT_STR("NetworkMode", &network), JSON_WANT_STR("Runtime", &runtime)) <
            0)
        return -1;
    m->spec.allow_internet = !str_eqc(network, "none");
    m->spec.tier = str_eqc(runtime, "runsc") ? STR("gvisor") : STR_NULL;
    return create_read_limits(m, host, err) < 0 ? -1 : create_read_mounts(m, host, err);
}

/* ---- of the container's ---- */

static int create_read_labels(struct docker_making *m, const json_t *body, struct err *err)
{
    const struct pair *all = NULL;
    size_t n = 0;
    if (JSON_WANTS_OF(body, m->arena, err, JSON_WANT_PAIRS("Labels", &all, &n)) < 0)
        return -1;
    m->labels = arena_alloc(m->arena, (n + 8) * sizeof(*m->labels)); /* and those of ours */
    for (size_t i = 0; all && i < n; i++) {
        if (!all[i].key.n || str_starts(all[i].key, STR("docker.")))
            return err_set(err, ERR_INVALID_ARGUMENT, "Labels: %.*s can't be one", (int)MIN(all[i].key.n, (size_t)64),
                           all[i].key.p);
        m->labels[m->n_labels++] = all[i];
    }
    return 0;
}

static void create_label(struct docker_making *m, const char *name, struct str value)
{
    m->labels[m->n_labels++] = (struct pair){str_of(name), value};
}

/* The command as people read it; "": none. */
static struct str create_command(struct arena *arena, const json_t *body, struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(DOCKER_BODY_MAX);
    static const char *const names[] = {"Entrypoint", "Cmd"};
    for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
        const struct str *words = NULL;
        size_t n = 0;
        if (docker_strings(arena, json_object_get(body, names[k]), names[k], &words, &n, err) < 0)
            return STR_NULL;
        for (size_t i = 0; i < n; i++)
            buf_printf(&b, "%s%.*s", buf_len(&b) ? " " : "", STR_ARG(words[i]));
    }
    if (!buf_len(&b))
        (void)err_set(err, ERR_INVALID_ARGUMENT,
                      "no command specified: of an image's CMD and ENTRYPOINT nothing is kept");
    return buf_len(&b) ? arena_str(arena, buf_str(&b)) : STR_NULL;
}

/* What start and inspect want to know later. Variables may be secrets: they stay out of what anybody can list. */
static struct str create_config(struct arena *arena, const json_t *body)
{
    json_t *kept AUTO_JSON = json_copy((json_t *)(uintptr_t)body);
    (void)json_object_del(kept, "Env");
    (void)json_object_del(kept, "Labels");
    char *text AUTO_FREE = json_dumps(kept, JSON_COMPACT);
    return arena_str(arena, str_of(text));
}

int docker_making_read(const json_t *body, struct arena *arena, struct docker_making *m, struct err *err)
{
    static const char known[] =
        "AttachStderr AttachStdin AttachStdout Cmd Domainname Entrypoint Env ExposedPorts HostConfig "
        "Hostname Image Labels MacAddress NetworkDisabled NetworkingConfig OpenStdin StdinOnce StopSignal "
        "StopTimeout Tty User Volumes WorkingDir";
    struct str user = STR(""), cwd = STR("");
    json_t *host = NULL, *networking = NULL;
    bool removes = false, is_alone = false;
    m->arena = arena;
    m->spec = (struct sandbox_spec){.secure = true, .mounts = m->mounts};
    if (docker_members(body, "", known, NULL, 0, err) < 0 ||
        JSON_WANTS_OF(body, m->arena, err, JSON_NEED_STR("Image", &m->image), JSON_WANT_STR("User", &user),
                      JSON_WANT_STR("WorkingDir", &cwd), JSON_WANT_BOOL("NetworkDisabled", &is_alone),
                      JSON_WANT_OBJECT("HostConfig", &host), JSON_WANT_OBJECT("NetworkingConfig", &networking)) < 0 ||
        docker_env(m->arena, json_object_get(body, "Env"), &m->spec.envs, &m->spec.n_envs, err) < 0 ||
        create_read_labels(m, body, err) < 0 || create_read_host(m, host, networking, err) < 0 ||
        json_get_bool(host, "AutoRemove", &removes, err) < 0)
        return -1;
    if (!str_is_of(m->name, "A-Za-z0-9_.-") || (m->name.n && !isalnum((unsigned char)m->name.p[0])))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "Invalid container name, only [a-zA-Z0-9][a-zA-Z0-9_.-]* are allowed");
    AUTO_FREE char *template_name = docker_template(m->image.p);
    if (!str_is_of(m->image, "A-Za-z0-9_./:@-") || !template_name[0])
        return err_set(err, ERR_INVALID_ARGUMENT, "invalid reference format");
    struct str command = create_command(m->arena, body, err);
    if (!command.p)
        return -1;
    m->spec.template_ref = arena_str(m->arena, str_of(template_name));
    m->spec.allow_internet = m->spec.allow_internet && !is_alone;
    create_label(m, DOCKER_IMAGE, m->image);
    create_label(m, DOCKER_NAME, m->name);
    create_label(m, DOCKER_COMMAND, command);
    create_label(m, DOCKER_RM, removes ? STR("1") : STR(""));
    create_label(m, DOCKER_CWD, cwd);
    create_label(m, DOCKER_USER, user);
    create_label(m, DOCKER_CONFIG, create_config(m->arena, body));
    m->spec.metadata = m->labels;
    m->spec.n_metadata = m->n_labels;
    return 0;
}

/* ---- making it ---- */

static void create_answer(struct call *c, const struct file_entry *entry UNUSED)
{
    call_value(c, 201, json_pack("{s:s, s:[]}", "Id", (const char *)c->state, "Warnings"));
}

static void create_in_place(void *ctx, const struct file_entry *entry, const struct err *err)
{
    call_on_file(ctx, entry, err && err->code == ERR_ALREADY_EXISTS ? NULL : err);
}

static void create_made(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    const struct actor own = {.name = c->actor.name, .who = c->actor.who, .is_own = true};
    struct str cwd = sandbox_label(sb, STR(DOCKER_CWD));
    c->sandbox = sandbox_ref(sb);
    c->state = arena_strdup(http_arena(c->req), sandbox_info(sb)->id);
    c->on_file = create_answer;
    if (cwd.n)
        call_ok(c, file_make_dir(sb, &own, STR("root"), cwd, create_in_place, c, &c->file, &c->err));
    else
        create_answer(c, NULL);
}

void docker_create(struct call *c)
{
    AUTO_JSON json_t *none = json_pack("{s:s}", "default", "deny");
    const struct network_spec network = {.policy = none};
    struct docker_making *m = arena_alloc(http_arena(c->req), sizeof(*m));
    struct str platform;
    if (call_query(c, "platform", &platform) && platform.n) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "platform is not supported: images are of this machine's");
        return;
    }
    (void)call_query(c, "name", &m->name);
    m->name = str_starts(m->name, STR("/")) ? str_sub(m->name, 1) : m->name;
    if (!call_ok(c, docker_making_read(c->body, http_arena(c->req), m, &c->err)))
        return;
    const struct sandbox *there = m->name.n ? docker_find(c, m->name) : NULL;
    if (there && str_eq(sandbox_label(there, STR(DOCKER_NAME)), m->name)) {
        call_fail(
            c, 409,
            "Conflict. The container name \"/%.*s\" is already in use by container \"%s\". You have to remove (or "
            "rename) that container to be able to reuse that name.",
            (int)MIN(m->name.n, (size_t)100), m->name.p, sandbox_info(there)->id);
        return;
    }
    m->spec.network = m->spec.allow_internet ? NULL : &network;
    if (sandbox_create(call_core(c), &c->actor, &m->spec, create_made, call_hold(c), &c->err) == 0)
        return;
    if (c->err.code == ERR_NOT_FOUND)
        (void)err_set(&c->err, ERR_NOT_FOUND, "No such image: %.*s", STR_ARG(m->image));
    call_drop(c, &c->err);
}
