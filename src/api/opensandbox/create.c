/* SPDX-License-Identifier: Apache-2.0 */
/* POST /sandboxes: their request as the core wants to know it. What can't be given is refused, and said. */
#include "api/opensandbox/handlers.h"
#include "base/mem.h"
#include "sandbox/network/network.h"
#include "sandbox/templates.h"
#include "sandbox/volume/volumes.h"

#include <math.h>
#include <stdlib.h>

enum { LABEL_MAX = 63, RULES_MAX = 1024 };

struct creation {
    struct sandbox_spec spec;
    struct network_spec network;
    json_t *policy; /* owned */
    struct pair *metadata;
    struct str missing; /* a volume that is to be made first; p NULL: none */
    const struct str *entrypoint;
    size_t n_entrypoint;
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
    return err_set(err, ERR_INVALID_ARGUMENT, "resourceLimits.%s: '%.*s' is no quantity", what,
                   (int)MIN(text.n, (size_t)32), text.p);
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

        if (str_eqc(key, "cpu")) {
            if (parse_quantity("cpu", limits[i].value, 1000, &value, err) < 0)
                return -1;
            spec->cpu_milli = (uint32_t)MIN(value, (uint64_t)UINT32_MAX);
        } else if (str_eqc(key, "memory") || str_eqc(key, "ephemeral-storage")) {
            if (parse_quantity("memory", limits[i].value, 1, &value, err) < 0)
                return -1;
            *(str_eqc(key, "memory") ? &spec->memory_bytes : &spec->disk_bytes) = value;
        } else {
            return err_set(err, ERR_INVALID_ARGUMENT, "resourceLimits: there is no '%.*s' here",
                           (int)MIN(key.n, (size_t)64), key.p);
        }
    }
    return 0;
}

static bool is_label(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        bool is_alnum =
            (s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= 'A' && s.p[i] <= 'Z') || (s.p[i] >= '0' && s.p[i] <= '9');
        bool is_inner = i > 0 && i + 1 < s.n && (s.p[i] == '-' || s.p[i] == '_' || s.p[i] == '.');

        if (!is_alnum && !is_inner)
            return false;
    }
    return s.n <= LABEL_MAX;
}

static void add_metadata(struct creation *r, const char *key, struct str value)
{
    r->metadata[r->spec.n_metadata++] = (struct pair){str_of(key), value};
}

static int read_metadata(const json_t *body, struct arena *a, struct creation *r, struct err *err)
{
    const struct pair *given = NULL;
    size_t n = 0;

    if (json_get_pairs(body, "metadata", a, &given, &n, err) < 0)
        return -1;
    r->metadata = arena_alloc(a, (n + 4) * sizeof(*r->metadata));
    for (size_t i = 0; i < n; i++) {
        struct str key = given[i].key, name = key;
        ssize_t slash = str_find_char(key, '/');

        if (slash >= 0)
            name = str_sub(key, (size_t)slash + 1);
        if (str_starts(key, STR(OPENSANDBOX_RESERVED)) || !name.n || !is_label(name) || !is_label(given[i].value) ||
            (slash >= 0 && (slash > 253 || !is_label(str_n(key.p, MIN((size_t)slash, (size_t)LABEL_MAX))))))
            return err_set(
                err, ERR_INVALID_ARGUMENT,
                "metadata '%.*s': keys and values are labels of at most %d characters [A-Za-z0-9._-], and not under %s",
                (int)MIN(key.n, (size_t)64), key.p, LABEL_MAX, OPENSANDBOX_RESERVED);
        r->metadata[r->spec.n_metadata++] = given[i];
    }
    return 0;
}

json_t *create_policy(const json_t *network, struct err *err)
{
    AUTO_JSON json_t *rules = json_array();
    struct str otherwise = STR("deny"), action, target;
    json_t *egress = NULL, *one;
    size_t i;

    if (!json_is_object(network)) {
        (void)err_set(err, ERR_INVALID_ARGUMENT, "networkPolicy must be an object");
        return NULL;
    }
    if (JSON_WANTS(network, NULL, err, JSON_WANT_STR("defaultAction", &otherwise), JSON_WANT_ARRAY("egress", &egress)) <
        0) {
        (void)err_prefix(err, "networkPolicy");
        return NULL;
    }
    json_array_foreach(egress, i, one)
    {
        action = STR("deny");
        target = STR("");
        if (!json_is_object(one) ||
            JSON_WANTS(one, NULL, err, JSON_WANT_STR("action", &action), JSON_NEED_STR("target", &target)) < 0 ||
            (!str_eqc(action, "allow") && !str_eqc(action, "deny"))) {
            (void)err_set(err, ERR_INVALID_ARGUMENT,
                          "networkPolicy.egress[%zu]: it is {\"action\": \"allow\" or \"deny\", \"target\": a name, "
                          "\"*.name\", an address or a network}",
                          i);
            return NULL;
        }
        (void)json_array_append_new(
            rules, json_pack("{s:s%}", str_eqc(action, "allow") ? "allow" : "deny", target.p, target.n));
    }
    if (!str_eqc(otherwise, "allow") && !str_eqc(otherwise, "deny")) {
        (void)err_set(err, ERR_INVALID_ARGUMENT, "networkPolicy.defaultAction is \"allow\" or \"deny\"");
        return NULL;
    }
    return json_pack("{s:s%,s:O}", "default", otherwise.p, otherwise.n, "rules", rules);
}

static int read_network(const json_t *body, struct creation *r, struct err *err)
{
    const json_t *network = json_object_get(body, "networkPolicy");

    r->spec.allow_internet = true;
    if (!json_asks_nothing(body, "credentialProxy") &&
        !json_asks_nothing(json_object_get(body, "credentialProxy"), "enabled"))
        return err_set(err, ERR_UNIMPLEMENTED, "the credential vault isn't there");
    if (!network || json_is_null(network))
        return 0;
    r->policy = create_policy(network, err);
    if (!r->policy)
        return -1;
    const char *otherwise = json_string_value(json_object_get(r->policy, "default"));
    r->network = (struct network_spec){.policy = r->policy};
    r->network.allow_internet = r->spec.allow_internet = strcmp(otherwise, "allow") == 0;
    r->spec.network = &r->network;
    return 0;
}

static int read_volume(struct call *c, struct creation *r, json_t *one, struct volume_mount *m, struct err *err)
{
    bool may_make = true;
    struct str name = STR(""), sub = STR("");
    json_t *claim = NULL;

    if (!json_is_object(one) ||
        JSON_WANTS(one, http_arena(c->req), err, JSON_WANT_STR("name", &name), JSON_NEED_STR("mountPath", &m->path),
                   JSON_WANT_BOOL("readOnly", &m->read_only), JSON_WANT_STR("subPath", &sub),
                   JSON_WANT_OBJECT("pvc", &claim), JSON_WANT_ANY("host"), JSON_WANT_ANY("ossfs")) < 0)
        return err_prefix(err, "volumes");
    if (!json_asks_nothing(one, "host") || !json_asks_nothing(one, "ossfs") || sub.n)
        return err_set(
            err, ERR_UNIMPLEMENTED,
            "volumes: named ones (\"pvc\") can be mounted, as a whole; host paths, object stores and sub-paths "
            "can't");
    m->name = STR("");
    if (!claim || json_wants(claim,
                             (const struct json_want[]){JSON_NEED_STR("claimName", &m->name),
                                                        JSON_WANT_BOOL("createIfNotExists", &may_make)},
                             2, http_arena(c->req), false, err) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "volumes: \"pvc\" with a \"claimName\" is needed");
    if (volume_find(call_core(c), c->actor.who.view, m->name))
        return 0;
    if (may_make)
        r->missing = m->name;
    return err_set(err, ERR_INVALID_ARGUMENT, "there is no volume '%.*s': 'cove volume create' makes one",
                   (int)MIN(m->name.n, (size_t)64), m->name.p);
}

static int read_volumes(struct call *c, struct creation *r, struct err *err)
{
    json_t *list = NULL, *one;
    size_t i;

    if (json_get_array(c->body, "volumes", &list, err) < 0)
        return -1;
    if (json_array_size(list) > VOLUME_MOUNTS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "a sandbox has at most %d volumes", VOLUME_MOUNTS_MAX);
    struct volume_mount *mounts = arena_alloc(http_arena(c->req), (json_array_size(list) + 1) * sizeof(*mounts));
    json_array_foreach(list, i, one)
    {
        mounts[i] = (struct volume_mount){.read_only = false};
        if (read_volume(c, r, one, &mounts[i], err) < 0)
            return -1;
    }
    r->spec.mounts = mounts;
    r->spec.n_mounts = json_array_size(list);
    return 0;
}

/* ---- what it is made from ---- */

/*
 * A template that is named as the image is, with or without its tag. The one that stands for OpenSandbox's own image is our interpreter's.
 */
static int resolve_image(struct call *c, struct str uri, struct sandbox_spec *spec, struct err *err)
{
    const struct template *t;
    ssize_t at = str_find_char(uri, '@');
    struct str name = at < 0 ? uri : str_n(uri.p, (size_t)at), plain = name;

    for (size_t i = name.n; i > 0 && name.p[i - 1] != '/'; i--)
        if (name.p[i - 1] == ':')
            plain = str_n(name.p, i - 1);
    const struct str candidates[] = {
        name, str_eqc(name, "") || plain.n == name.n || !str_ends(name, STR(":latest")) ? name : plain,
        str_ends(plain, STR("opensandbox/code-interpreter")) ? STR("code-interpreter-v1") : name};
    for (size_t i = 0; i < ARRAY_SIZE(candidates); i++)
        if (core_template_find(call_core(c), c->actor.who.view, candidates[i], &t, err) == 0) {
            spec->template_ref = candidates[i];
            return 0;
        }
    return err_set(
        err, ERR_INVALID_ARGUMENT,
        "no template stands for the image '%.*s': make one with 'cove template build --name %.*s --from-image ...'",
        (int)MIN(name.n, (size_t)64), name.p, (int)MIN(plain.n, (size_t)64), plain.p);
}

static int read_source(struct call *c, struct creation *r, struct err *err)
{
    json_t *image = NULL;
    struct str uri = STR(""), snapshot = STR("");
    const struct template *t;

    if (json_get_object(c->body, "image", &image, err) < 0 || json_get_str(c->body, "snapshotId", &snapshot, err) < 0)
        return -1;
    if (image && json_wants(image, (const struct json_want[]){JSON_NEED_STR("uri", &uri), JSON_WANT_ANY("auth")}, 2,
                            http_arena(c->req), true, err) < 0)
        return err_prefix(err, "image");
    if (!uri.n == !snapshot.n)
        return err_set(err, ERR_INVALID_ARGUMENT, "exactly one of \"image\" and \"snapshotId\" is needed");
    if (uri.n) {
        add_metadata(r, OPENSANDBOX_RESERVED "image", uri);
        return resolve_image(c, uri, &r->spec, err);
    }
    if (core_template_find(call_core(c), c->actor.who.view, snapshot, &t, err) < 0 || !t->is_snapshot)
        return err_set(err, ERR_NOT_FOUND, "there is no snapshot %.*s", (int)MIN(snapshot.n, (size_t)64), snapshot.p);
    add_metadata(r, OPENSANDBOX_RESERVED "snapshot", snapshot);
    r->spec.template_ref = snapshot;
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

static int read_entrypoint(struct call *c, struct creation *r, struct err *err)
{
    struct arena *a = http_arena(c->req);
    const json_t *list = json_object_get(c->body, "entrypoint");

    if (json_get_strs(c->body, "entrypoint", a, &r->entrypoint, &r->n_entrypoint, err) < 0)
        return -1;
    if (!r->n_entrypoint)
        return 0;
    char *text = json_dumps(list, JSON_COMPACT);
    add_metadata(r, OPENSANDBOX_RESERVED "entrypoint", arena_str(a, str_of(text)));
    mem_free(text);
    /* What only keeps a container up has nothing to do here. */
    if (r->n_entrypoint == 3 && str_eqc(r->entrypoint[0], "tail") && str_eqc(r->entrypoint[2], "/dev/null"))
        r->n_entrypoint = 0;
    return 0;
}

static int read_creation(struct call *c, struct creation *r, struct err *err)
{
    struct arena *a = http_arena(c->req);
    int64_t timeout_s = 0;
    bool is_secure = true;

    if (JSON_WANTS(c->body, a, err, JSON_WANT_ANY("image"), JSON_WANT_ANY("snapshotId"), JSON_WANT_ANY("platform"),
                   JSON_WANT_INT("timeout", 1, INT32_MAX, &timeout_s), JSON_WANT_ANY("resourceLimits"),
                   JSON_WANT_ANY("resourceRequests"), JSON_WANT_PAIRS("env", &r->spec.envs, &r->spec.n_envs),
                   JSON_WANT_ANY("metadata"), JSON_WANT_ANY("entrypoint"), JSON_WANT_ANY("lifecycle"),
                   JSON_WANT_ANY("networkPolicy"), JSON_WANT_ANY("credentialProxy"),
                   JSON_WANT_BOOL("secureAccess", &is_secure), JSON_WANT_ANY("volumes"),
                   JSON_WANT_ANY("extensions")) < 0)
        return -1;
    if (!json_asks_nothing(c->body, "lifecycle"))
        return err_set(err, ERR_UNIMPLEMENTED, "lifecycle hooks aren't there");
    if (json_object_get(json_object_get(c->body, "extensions"), "poolRef"))
        return err_set(err, ERR_UNIMPLEMENTED, "pools aren't there: 'cove template warm' keeps sandboxes ready");
    r->spec.secure = true; /* whatever was asked for: its headers come with the endpoint */
    r->spec.timeout_ms = (uint64_t)timeout_s * 1000;
    if (read_limits(c->body, a, &r->spec, err) < 0 || read_metadata(c->body, a, r, err) < 0 ||
        read_network(c->body, r, err) < 0 || read_source(c, r, err) < 0 || read_platform(c->body, err) < 0 ||
        read_entrypoint(c, r, err) < 0 || read_volumes(c, r, err) < 0)
        return -1;
    r->spec.metadata = r->metadata;
    return 0;
}

/* ---- it is there ---- */

static void entrypoint_exits(void *ctx, const struct exec_exit *exit)
{
    (void)ctx, (void)exit; /* it is on record */
}

static void entrypoint_fails(void *ctx, const struct err *err)
{
    (void)ctx, (void)err;
}

static void entrypoint_output(void *ctx, enum wire_channel channel, struct str bytes)
{
    (void)ctx, (void)channel, (void)bytes;
}

static void start_entrypoint(struct call *c, struct sandbox *sb)
{
    static const struct exec_ops ops = {
        .on_output = entrypoint_output, .on_exit = entrypoint_exits, .on_error = entrypoint_fails};
    const struct creation *r = c->state;
    struct exec_spec spec = {.tag = STR("opensandbox:entrypoint"), .user = STR("root")};
    struct follow *f;
    struct err err;

    if (!r->n_entrypoint)
        return;
    spec.cmd = r->entrypoint[0];
    spec.args = r->entrypoint + 1;
    spec.n_args = r->n_entrypoint - 1;
    if (exec_start(sb, &c->actor, &spec, &ops, NULL, &f, &err) == 0)
        exec_close(f);
}

static void on_created(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = call_back(ctx, err);

    if (!c)
        return;
    start_entrypoint(c, sb);
    http_add_header(c->req, STR("location"),
                    str_of(arena_printf(http_arena(c->req), "/v1/sandboxes/%s", sandbox_info(sb)->id)));
    opensandbox_answer(c, 202, lifecycle_sandbox(sb));
}

/* From the beginning: the volume is there now. */
static void on_volume(void *ctx, const struct volume *v, const struct err *err)
{
    struct call *c = call_back(ctx, err);

    (void)v;
    if (c)
        create_sandbox(c);
}

void create_sandbox(struct call *c)
{
    struct creation *r = arena_alloc(http_arena(c->req), sizeof(*r));
    struct err err;

    *r = (struct creation){.policy = NULL};
    c->state = r;
    if (read_creation(c, r, &err) < 0) {
        if (!r->missing.p)
            call_fail_err(c, &err);
        else if (volume_make(call_core(c), &c->actor, r->missing, 0, on_volume, call_hold(c), &err) < 0)
            call_drop(c, &err);
    } else if (sandbox_create(call_core(c), &c->actor, &r->spec, on_created, call_hold(c), &err) < 0) {
        call_drop(c, &err);
    }
    json_decref(r->policy);
}
