/* SPDX-License-Identifier: Apache-2.0 */
/* POST /sandboxes: their request as the core wants to know it. What can't be given is refused, and said. */
#include "api/opensandbox/handlers.h"
#include "base/mem.h"
#include "sandbox/life/layers.h"
#include "sandbox/network/network.h"
#include "sandbox/templates.h"
#include "sandbox/volume/volumes.h"

#include <math.h>
#include <stdlib.h>

enum { LABEL_MAX = 63, PREFIX_MAX = 253, RESERVED_MAX = 8, RENEW_MIN_S = 300, RENEW_MAX_S = 86400 };

struct osb_creation {
    struct opensandbox *o;
    struct core *core;
    const struct actor *actor;
    struct arena *arena;
    json_t *body;
    const char *template_name; /* of the image, which was pulled; NULL: that is to be found out */
    struct sandbox_spec spec;
    struct network_spec network;
    json_t *policy; /* owned */
    struct pair *metadata;
    struct str pull;    /* an image that no template stands for; p NULL: none */
    struct str missing; /* a volume that is to be made first; p NULL: none */
    uint64_t missing_bytes;
    const struct str *entrypoint;
    size_t n_entrypoint;
    struct osb_hooks *hooks;
    bool has_bad_label;
};

/* ---- pieces ---- */

/* "512Mi", "2Gi", "1G", "1073741824"; "500m", "1.5" with scale 1000. */
static int parse_quantity(const char *what, struct str text, double scale, uint64_t *ret_value, struct err *err)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"Ki", 1024.0},
                 {"Mi", 1024.0 * 1024},
                 {"Gi", 1024.0 * 1024 * 1024},
                 {"Ti", 1099511627776.0},
                 {"k", 1e3},
                 {"M", 1e6},
                 {"G", 1e9},
                 {"T", 1e12},
                 {"m", 1e-3},
                 {"", 1}};
    char copy[32], *end;
    double number = -1;
    if (text.n && text.n < sizeof(copy)) {
        memcpy(copy, text.p, text.n);
        copy[text.n] = 0;
        number = strtod(copy, &end);
        for (size_t i = 0; i < ARRAY_SIZE(units); i++)
            if (end != copy && strcmp(end, units[i].suffix) == 0) {
                number *= units[i].factor * scale;
                if (!isfinite(number) || number < 1 || number > 1e15)
                    break;
                *ret_value = (uint64_t)number;
                return 0;
            }
    }
    return err_set(err, ERR_INVALID_ARGUMENT, "resourceLimits.%s: '%.*s' is not a quantity", what,
                   STR_ARG_MAX(text, 32));
}

static int read_limits(const json_t *body, struct arena *a, struct sandbox_spec *spec, struct err *err)
{
    const struct pair *limits = NULL;
    size_t n = 0;
    uint64_t value;
    if (json_get_pairs(body, "resourceLimits", a, &limits, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct str key = limits[i].key;
        bool is_cpu = str_eqc(key, "cpu"), is_memory = str_eqc(key, "memory");
        if (!is_cpu && !is_memory && !str_eqc(key, "ephemeral-storage"))
            return err_set(err, ERR_INVALID_ARGUMENT, "resourceLimits: there is no '%.*s' here", STR_ARG_MAX(key, 64));
        if (parse_quantity(is_cpu ? "cpu" : "memory", limits[i].value, is_cpu ? 1000 : 1, &value, err) < 0)
            return -1;
        if (is_cpu)
            spec->cpu_milli = (uint32_t)MIN(value, (uint64_t)UINT32_MAX);
        else
            *(is_memory ? &spec->memory_bytes : &spec->disk_bytes) = value;
    }
    return 0;
}

static bool create_is_label(struct str s)
{
    return s.n <= LABEL_MAX && str_is_of(s, "A-Za-z0-9._-") &&
           (!s.n || (!strchr("._-", s.p[0]) && !strchr("._-", s.p[s.n - 1])));
}

static void add_metadata(struct osb_creation *r, const char *key, struct str value)
{
    r->metadata[r->spec.n_metadata++] = (struct pair){str_of(key), value};
}

int create_check_label(struct str key, struct str value, struct err *err)
{
    struct str name = key, prefix = STR_NULL, part;
    if (str_find_char(key, '/') >= 0)
        (void)str_split(&name, '/', &prefix);
    bool is_good = name.n && create_is_label(name) && create_is_label(value) && prefix.n <= PREFIX_MAX &&
                   !str_starts(key, STR(OPENSANDBOX_RESERVED));
    while (str_split(&prefix, '.', &part))
        is_good &= part.n && create_is_label(part);
    if (is_good)
        return 0;
    return err_set(
        err, ERR_INVALID_ARGUMENT,
        "metadata '%.*s': keys and values are labels of at most %d characters [A-Za-z0-9._-], and not under %s",
        STR_ARG_MAX(key, 64), LABEL_MAX, OPENSANDBOX_RESERVED);
}

static int read_metadata(const json_t *body, struct arena *a, struct osb_creation *r, struct err *err)
{
    const struct pair *given = NULL;
    size_t n = 0;
    if (json_get_pairs(body, "metadata", a, &given, &n, err) < 0)
        return -1;
    r->metadata = arena_alloc(a, (n + RESERVED_MAX) * sizeof(*r->metadata));
    for (size_t i = 0; i < n; i++) {
        r->has_bad_label = create_check_label(given[i].key, given[i].value, err) < 0;
        if (r->has_bad_label)
            return -1;
        r->metadata[r->spec.n_metadata++] = given[i];
    }
    return 0;
}

static int create_read_network(const json_t *body, struct osb_creation *r, struct err *err)
{
    const json_t *network = json_object_get(body, "networkPolicy");
    r->spec.allow_internet = true;
    if (!network || json_is_null(network))
        return 0;
    r->policy = egress_read_policy(network, err);
    if (!r->policy)
        return -1;
    const char *otherwise = json_string_value(json_object_get(r->policy, "default"));
    r->network = (struct network_spec){.policy = r->policy};
    r->network.allow_internet = r->spec.allow_internet = strcmp(otherwise, "allow") == 0;
    r->spec.network = &r->network;
    return 0;
}

static int create_read_claim(struct osb_creation *r, const json_t *claim, struct volume_mount *m, struct err *err)
{
    bool may_make = true, is_brief = false;
    struct str size = STR("");
    if (JSON_WANTS(claim, r->arena, err, JSON_NEED_STR("claimName", &m->name),
                   JSON_WANT_BOOL("createIfNotExists", &may_make),
                   JSON_WANT_BOOL("deleteOnSandboxTermination", &is_brief), JSON_WANT_STR("storage", &size),
                   JSON_WANT_ANY("storageClass"), JSON_WANT_ANY("accessModes")) < 0)
        return err_prefix(err, "volumes: pvc");
    if (is_brief)
        return err_set(err, ERR_UNIMPLEMENTED,
                       "volumes: a volume outlives its sandboxes: 'cove volume remove' ends it");
    if (size.n && parse_quantity("storage", size, 1, &r->missing_bytes, err) < 0)
        return -1;
    if (volume_find(r->core, r->actor->who.view, m->name))
        return 0;
    if (may_make)
        r->missing = m->name;
    return err_set(err, ERR_INVALID_ARGUMENT, "there is no volume '%.*s': 'cove volume create' makes one",
                   STR_ARG_MAX(m->name, 64));
}

static int read_volume(struct osb_creation *r, json_t *one, struct volume_mount *m, struct err *err)
{
    struct str name = STR("");
    json_t *claim = NULL, *host = NULL;
    if (!json_is_object(one))
        return err_set(err, ERR_INVALID_ARGUMENT, "volumes are objects");
    if (JSON_WANTS(one, r->arena, err, JSON_WANT_STR("name", &name), JSON_NEED_STR("mountPath", &m->path),
                   JSON_WANT_BOOL("readOnly", &m->read_only), JSON_WANT_STR("subPath", &m->sub),
                   JSON_WANT_OBJECT("pvc", &claim), JSON_WANT_OBJECT("host", &host), JSON_WANT_ANY("ossfs")) < 0)
        return err_prefix(err, "volumes");
    if (!json_asks_nothing(one, "ossfs"))
        return err_set(err, ERR_UNIMPLEMENTED,
                       "volumes: object stores can't be mounted here: there is no driver for them");
    if (!claim == !host)
        return err_set(err, ERR_INVALID_ARGUMENT, "volumes: exactly one of \"pvc\" and \"host\" is needed");
    m->is_host = host;
    return host ? JSON_WANTS(host, r->arena, err, JSON_NEED_STR("path", &m->name))
                : create_read_claim(r, claim, m, err);
}

static int read_volumes(struct osb_creation *r, struct err *err)
{
    json_t *list = NULL;
    if (json_get_array(r->body, "volumes", &list, err) < 0)
        return -1;
    if (json_array_size(list) > VOLUME_MOUNTS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "a sandbox has at most %d volumes", VOLUME_MOUNTS_MAX);
    struct volume_mount *mounts = arena_alloc(r->arena, (json_array_size(list) + 1) * sizeof(*mounts));
    JSON_FOREACH_AT (i, one, list) {
        mounts[i] = (struct volume_mount){.sub = STR("")};
        if (read_volume(r, one, &mounts[i], err) < 0)
            return -1;
    }
    r->spec.mounts = mounts;
    r->spec.n_mounts = json_array_size(list);
    return 0;
}

/* ---- what it is made from ---- */

/*
 * A template that is named as the image is, with or without its tag. The one that stands for OpenSandbox's own image is
 * our interpreter's.
 */
static int resolve_image(struct osb_creation *r, struct str uri, struct err *err)
{
    const struct template *t;
    struct str name = str_before(uri, '@'), plain = name;
    for (size_t i = name.n; i > 0 && name.p[i - 1] != '/'; i--)
        if (name.p[i - 1] == ':')
            plain = str_n(name.p, i - 1);
    const struct str candidates[] = {
        name, str_eqc(name, "") || plain.n == name.n || !str_ends(name, STR(":latest")) ? name : plain,
        str_ends(plain, STR("opensandbox/code-interpreter")) ? STR("code-interpreter-v1") : name,
        str_of(pending_name(r->arena, uri, false))};

    if (r->template_name) {
        r->spec.template_ref = str_of(r->template_name);
        return 0;
    }
    bool is_private = !json_asks_nothing(json_object_get(r->body, "image"), "auth");
    for (size_t i = 0; i < ARRAY_SIZE(candidates) - is_private; i++)
        if (core_template_find(r->core, r->actor->who.view, candidates[i], &t, err) == 0) {
            r->spec.template_ref = candidates[i];
            return 0;
        }
    if (r->o->builder)
        r->pull = uri;
    return err_set(
        err, ERR_INVALID_ARGUMENT,
        "no template stands for the image '%.*s': make one with 'cove template build --name %.*s --from-image %.*s'",
        STR_ARG_MAX(name, 64), STR_ARG_MAX(plain, 64), STR_ARG_MAX(name, 64));
}

static int read_source(struct osb_creation *r, struct err *err)
{
    json_t *image = NULL;
    struct str uri = STR(""), snapshot = STR(""), pool = STR("");
    uint32_t ready;
    const struct template *t;
    if (json_get_object(r->body, "image", &image, err) < 0 || json_get_str(r->body, "snapshotId", &snapshot, err) < 0)
        return -1;
    if (image && json_wants(image, (const struct json_want[]){JSON_NEED_STR("uri", &uri), JSON_WANT_ANY("auth")}, 2,
                            r->arena, true, err) < 0)
        return err_prefix(err, "image");
    if (json_get_str(json_object_get(r->body, "extensions"), "poolRef", &pool, err) < 0)
        return err_prefix(err, "extensions");
    if (pool.n && !uri.n && !snapshot.n) {
        r->spec.template_ref = pool;
        r->spec.memory_bytes = r->spec.disk_bytes = r->spec.cpu_milli = 0; /* those of the pool */
        if (core_template_find(r->core, r->actor->who.view, pool, &t, err) < 0 || !core_warm_count(r->core, t, &ready))
            return err_set(err, ERR_NOT_FOUND, "there is no pool %.*s", STR_ARG_MAX(pool, 64));
        if (core_warm_most(r->core, t) && pools_allocated(r->core, t) >= core_warm_most(r->core, t))
            return err_set(err, ERR_RESOURCE_EXHAUSTED,
                           "pool %.*s is exhausted: its poolMax of %u sandboxes are in use", STR_ARG_MAX(pool, 64),
                           core_warm_most(r->core, t));
        add_metadata(r, OPENSANDBOX_RESERVED POOL_KEY, str_of(t->id));
        return 0;
    }
    if (!uri.n == !snapshot.n)
        return err_set(err, ERR_INVALID_ARGUMENT, "exactly one of \"image\" and \"snapshotId\" is required");
    if (uri.n) {
        add_metadata(r, OPENSANDBOX_RESERVED "image", uri);
        return resolve_image(r, uri, err);
    }
    if (core_template_find(r->core, r->actor->who.view, snapshot, &t, err) < 0 || !t->is_snapshot)
        return err_set(err, ERR_NOT_FOUND, "there is no snapshot %.*s", STR_ARG_MAX(snapshot, 64));
    add_metadata(r, OPENSANDBOX_RESERVED "snapshot", snapshot);
    r->spec.template_ref = snapshot;
    return 0;
}

/* Theirs, and "timeout.pause": at its end it is paused, and traffic resumes it. */
static int create_read_extensions(struct osb_creation *r, struct err *err)
{
    json_t *all = json_object_get(r->body, "extensions");
    uint64_t seconds;
    if (json_asks_nothing(r->body, "extensions"))
        return 0;
    JSON_FOREACH_MEMBER (key, value, all) {
        struct str text = json_str(value);
        if (!json_is_string(value))
            return err_set(err, ERR_INVALID_ARGUMENT, "extensions '%.64s' must be a string", key);
        if (strcmp(key, "access.renew.extend.seconds") == 0) {
            if (str_to_u64(text, &seconds) < 0 || seconds < RENEW_MIN_S || seconds > RENEW_MAX_S)
                return err_set(err, ERR_INVALID_ARGUMENT, "extensions '%s' must be a number from %d to %d", key,
                               RENEW_MIN_S, RENEW_MAX_S);
            add_metadata(r, OPENSANDBOX_RESERVED RENEW_KEY, text);
        } else if (strcmp(key, "timeout.pause") == 0) {
            r->spec.pause_on_timeout = r->spec.auto_resume = str_eqc(text, "true");
        } else if (strcmp(key, "cove.tier") == 0) {
            r->spec.tier = text;
        }
    }
    AUTO_FREE char *text = json_dumps(all, JSON_COMPACT);
    add_metadata(r, OPENSANDBOX_RESERVED "extensions", arena_str(r->arena, str_of(text)));
    return 0;
}

static int read_platform(const json_t *body, struct err *err)
{
    json_t *platform = NULL;
    struct str os = STR("linux"), arch = STR("amd64");
    if (json_get_object(body, "platform", &platform, err) < 0)
        return -1;
    if (platform && JSON_WANTS(platform, NULL, err, JSON_WANT_STR("os", &os), JSON_WANT_STR("arch", &arch)) < 0)
        return err_prefix(err, "platform");
    return str_eqc(os, "linux") && str_eqc(arch, "amd64")
               ? 0
               : err_set(err, ERR_INVALID_ARGUMENT, "platform: this machine runs linux/amd64 only");
}

static int read_entrypoint(struct osb_creation *r, struct err *err)
{
    struct arena *a = r->arena;
    const json_t *list = json_object_get(r->body, "entrypoint");
    if (json_get_strs(r->body, "entrypoint", a, &r->entrypoint, &r->n_entrypoint, err) < 0)
        return -1;
    if (!r->n_entrypoint)
        return 0;
    AUTO_FREE char *text = json_dumps(list, JSON_COMPACT);
    add_metadata(r, OPENSANDBOX_RESERVED "entrypoint", arena_str(a, str_of(text)));
    /* What only keeps a container up has nothing to do here. */
    if (r->n_entrypoint == 3 && str_eqc(r->entrypoint[0], "tail") && str_eqc(r->entrypoint[2], "/dev/null"))
        r->n_entrypoint = 0;
    return 0;
}

static int read_creation(struct osb_creation *r, struct err *err)
{
    struct arena *a = r->arena;
    int64_t timeout_s = 0;
    bool is_private = false;
    if (JSON_WANTS(r->body, a, err, JSON_WANT_ANY("image"), JSON_WANT_ANY("snapshotId"), JSON_WANT_ANY("platform"),
                   JSON_WANT_INT("timeout", 1, INT32_MAX, &timeout_s), JSON_WANT_ANY("resourceLimits"),
                   JSON_WANT_ANY("resourceRequests"), JSON_WANT_PAIRS("env", &r->spec.envs, &r->spec.n_envs),
                   JSON_WANT_ANY("metadata"), JSON_WANT_ANY("entrypoint"), JSON_WANT_ANY("lifecycle"),
                   JSON_WANT_ANY("networkPolicy"), JSON_WANT_ANY("credentialProxy"),
                   JSON_WANT_BOOL("secureAccess", &is_private), JSON_WANT_ANY("volumes"),
                   JSON_WANT_ANY("extensions")) < 0)
        return -1;
    r->spec.secure = true; /* execd and egress always are: their headers come with the endpoint */
    r->spec.private_traffic = is_private;
    r->spec.timeout_ms = (uint64_t)timeout_s * 1000;
    if (read_limits(r->body, a, &r->spec, err) < 0 || read_metadata(r->body, a, r, err) < 0 ||
        create_read_network(r->body, r, err) < 0 || read_platform(r->body, err) < 0 || read_entrypoint(r, err) < 0 ||
        hooks_read(r->body, a, &r->hooks, err) < 0 || create_read_extensions(r, err) < 0 || read_volumes(r, err) < 0 ||
        read_source(r, err) < 0)
        return -1;
    r->spec.metadata = r->metadata;
    return 0;
}

/* ---- it is there ---- */

void create_began(const struct osb_creation *r, struct sandbox *sb)
{
    hooks_start(r->o, r->arena, r->hooks, r->entrypoint, r->n_entrypoint, sb, r->actor);
}

void create_drop(struct osb_creation *r)
{
    if (r)
        json_decref(TAKE_PTR(r->policy));
}

struct osb_creation *create_read(struct opensandbox *o, const struct actor *actor, struct arena *a, json_t *body,
                                 const char *template_name, struct err *err)
{
    struct osb_creation *r = arena_alloc(a, sizeof(*r));
    *r = (struct osb_creation){
        .o = o, .core = o->lifecycle.core, .actor = actor, .arena = a, .body = body, .template_name = template_name};
    if (read_creation(r, err) == 0)
        return r;
    create_drop(r);
    return NULL;
}

int create_begin_as(struct osb_creation *r, const char *id, const char *token, sandbox_fn done, void *ctx,
                    struct err *err)
{
    r->spec.id = id;
    r->spec.access_token = token;
    return sandbox_create(r->core, r->actor, &r->spec, done, ctx, err);
}

static void on_created(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = ctx;
    /* As its own server says it; 409 is what somebody else's change made impossible. */
    if (err && err->code == ERR_FAILED_PRECONDITION && c->req && !c->answered)
        opensandbox_fail(c, 500, "DOCKER::SANDBOX_START_FAILED", err->msg);
    if (!(c = call_back(c, err)))
        return;
    create_began(c->state, sb);
    http_add_header(c->req, STR("location"),
                    str_of(arena_printf(http_arena(c->req), "/v1/sandboxes/%s", sandbox_info(sb)->id)));
    call_value(c, 202, lifecycle_sandbox(sb));
}

/* From the beginning: the volume is there now. */
static void create_on_volume(void *ctx, const struct volume *v UNUSED, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        create_sandbox(c);
}

void create_sandbox(struct call *c)
{
    struct arena *a = http_arena(c->req);
    struct osb_creation *r = arena_alloc(a, sizeof(*r));
    struct err err;
    *r = (struct osb_creation){
        .o = lifecycle_of(c), .core = call_core(c), .actor = &c->actor, .arena = a, .body = c->body};
    c->state = r;
    if (read_creation(r, &err) < 0) {
        if (r->pull.p)
            pending_begin(c, r->pull);
        else if (r->has_bad_label)
            opensandbox_fail(c, 400, "SANDBOX::INVALID_METADATA_LABEL", err.msg);
        else if (!r->missing.p)
            call_fail_err(c, &err);
        else
            call_held(c, volume_make(r->core, &c->actor, r->missing, r->missing_bytes, create_on_volume, call_hold(c),
                                     &c->err));
    } else {
        call_held(c, sandbox_create(r->core, &c->actor, &r->spec, on_created, call_hold(c), &c->err));
    }
    create_drop(r);
}
