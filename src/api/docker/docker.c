/* SPDX-License-Identifier: Apache-2.0 */
#include "api/docker/handlers.h"
#include "base/mem.h"
#include "http/client/connect.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#define API_VERSION "1.44"
#define API_LEAST "1.24"

/* ---- who asks, and errors ---- */

static bool docker_authenticate(struct call *c)
{
    return access_by_peer_or_key(c, docker_of(c)->owner_uid);
}

static struct sandbox *docker_find_sandbox(struct call *c)
{
    bool is_exec = c->route->flags & DOCKER_EXECED;
    const struct docker_exec *e = is_exec ? map_get(&docker_of(c)->execs, c->args[0]) : NULL;
    struct sandbox *sb = is_exec ? e ? e->process.box->sb : NULL : docker_find(c, c->args[0]);
    if (sb && access_reaches(&c->actor.who, sb))
        return sb;
    call_refuse(c, ERR_NOT_FOUND, "No such %s: %.*s", is_exec ? "exec instance" : "container",
                (int)MIN(c->args[0].n, (size_t)100), c->args[0].p);
    return NULL;
}

/* That a container has no such user is no question of who asks, whom it knows by now. */
static int docker_status_of(const struct call *c, struct err *err)
{
    if (err->code == ERR_UNAUTHENTICATED && err->reason != ERR_KEY_GONE && c->sandbox) {
        const struct err why = *err;
        const char *name = strchr(why.msg, '\'');
        (void)err_set(err, ERR_INVALID_ARGUMENT, "unable to find user %s: no matching entries in passwd file",
                      name ? name : "");
    }
    return err->code == ERR_FAILED_PRECONDITION ? 409 : connect_status(err->code);
}

static void docker_append_error(struct buf *b, int status UNUSED, enum err_code code UNUSED, struct str message,
                                const char *hint UNUSED)
{
    json_open(b, "message", message);
    buf_append_char(b, '}');
}

static const struct facade_ops docker_ops = {
    .name = "docker",
    .body_max = DOCKER_BODY_MAX,
    .body_error = "",
    .authenticate = docker_authenticate,
    .find_sandbox = docker_find_sandbox,
    .append_error = docker_append_error,
    .status_of = docker_status_of,
};

bool docker_flag(struct call *c, const char *name)
{
    struct str text;
    return call_query(c, name, &text) && text.n && !http_list_has(STR("0,no,false,none"), text);
}

/* ---- the service ---- */

static void docker_ping(struct call *c)
{
    http_add_header(c->req, STR("api-version"), STR(API_VERSION));
    http_add_header(c->req, STR("ostype"), STR("linux"));
    call_respond(c, 200, "text/plain", STR("OK"));
}

static const char *docker_arch(const char *machine)
{
    return strcmp(machine, "x86_64") == 0 ? "amd64" : strcmp(machine, "aarch64") == 0 ? "arm64" : machine;
}

static void docker_version(struct call *c)
{
    struct utsname u;
    (void)uname(&u);
    call_value(c, 200,
               json_pack("{s:{s:s+}, s:[], s:s, s:s, s:s, s:s, s:s, s:s}", "Platform", "Name", "Cove ",
                         docker_of(c)->version, "Components", "Version", DOCKER_ENGINE, "ApiVersion", API_VERSION,
                         "MinAPIVersion", API_LEAST, "Os", "linux", "Arch", docker_arch(u.machine), "KernelVersion",
                         u.release));
}

static bool docker_count(void *ctx, struct sandbox *sb)
{
    *(json_int_t *)ctx += sandbox_label(sb, STR(DOCKER_IMAGE)).p != NULL;
    return true;
}

static void docker_info(struct call *c)
{
    struct utsname u;
    struct sysinfo machine = {0};
    json_int_t n = 0;
    (void)uname(&u);
    (void)sysinfo(&machine);
    access_each_sandbox(c, docker_count, &n);
    call_value(c, 200,
               json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:[]}", "ID", "cove", "Name",
                         "cove", "Containers", n, "Driver", "cove", "ServerVersion", DOCKER_ENGINE, "OperatingSystem",
                         "Cove", "OSType", "linux", "Architecture", u.machine, "KernelVersion", u.release, "NCPU",
                         (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "MemTotal",
                         (json_int_t)machine.totalram * machine.mem_unit, "DockerRootDir", "", "SecurityOptions"));
}

/* What containers have, or have not: a network that is theirs alone. */
static json_t *docker_network(const char *name)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:{}, s:{}, s:{}}", "Id", name, "Name", name, "Driver",
                     name[0] == 'b' ? "bridge" : "null", "Scope", "local", "Containers", "Options", "Labels");
}

static void docker_networks(struct call *c)
{
    bool is_none = str_eqc(c->args[0], "none");
    if (!c->args[0].p)
        call_value(c, 200, json_pack("[o, o]", docker_network("bridge"), docker_network("none")));
    else if (is_none || str_eqc(c->args[0], "bridge"))
        call_value(c, 200, docker_network(is_none ? "none" : "bridge"));
    else
        call_refuse(c, ERR_NOT_FOUND, "network %.*s not found", (int)MIN(c->args[0].n, (size_t)100), c->args[0].p);
}

/* ---- routes ---- */

const struct route docker_routes[] = {
    {HTTP_METHOD_GET, "/_ping", docker_ping, ROUTE_OPEN, NULL},
    {HTTP_METHOD_GET, "/version", docker_version, 0, NULL},
    {HTTP_METHOD_GET, "/info", docker_info, 0, NULL},
    {HTTP_METHOD_GET, "/networks", docker_networks, 0, NULL},
    {HTTP_METHOD_GET, "/networks/{}", docker_networks, 0, NULL},
    {HTTP_METHOD_GET, "/images/json", docker_images, 0, NULL},
    {HTTP_METHOD_POST, "/images/create", docker_image_pull, ROUTE_WIDE, NULL},
    {HTTP_METHOD_GET, "/images/{}/json", docker_image, 0, NULL},
    {HTTP_METHOD_DELETE, "/images/{}", docker_image_remove, 0, NULL},
    {HTTP_METHOD_GET, "/containers/json", docker_list, 0, NULL},
    {HTTP_METHOD_POST, "/containers/create", docker_create, ROUTE_BODY | ROUTE_WIDE, NULL},
    {HTTP_METHOD_GET, "/containers/{}/json", docker_inspect, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/containers/{}/logs", docker_logs, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/containers/{}/attach", docker_logs, ROUTE_SANDBOX, "attach"},
    {HTTP_METHOD_POST, "/containers/{}/start", docker_start, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/containers/{}/stop", docker_stop, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/containers/{}/restart", docker_stop, ROUTE_SANDBOX, "restart"},
    {HTTP_METHOD_POST, "/containers/{}/kill", docker_stop, ROUTE_SANDBOX, "kill"},
    {HTTP_METHOD_POST, "/containers/{}/wait", docker_wait, ROUTE_SANDBOX | ROUTE_READ, NULL},
    {HTTP_METHOD_POST, "/containers/{}/resize", docker_box_resize, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/containers/{}", docker_remove, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/containers/{}/archive", docker_archive_get, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_HEAD, "/containers/{}/archive", docker_archive_head, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_PUT, "/containers/{}/archive", docker_archive_put, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/containers/{}/exec", docker_exec_create, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/exec/{}/start", docker_exec_start, ROUTE_BODY_MAY | ROUTE_SANDBOX | DOCKER_EXECED, NULL},
    {HTTP_METHOD_POST, "/exec/{}/resize", docker_exec_resize, ROUTE_SANDBOX | DOCKER_EXECED, NULL},
    {HTTP_METHOD_GET, "/exec/{}/json", docker_exec_inspect, ROUTE_SANDBOX | DOCKER_EXECED, NULL},
};
const size_t docker_n_routes = ARRAY_SIZE(docker_routes);

/* Behind "/v1.44"; all of it when there is no version. */
static struct str docker_unversioned(struct str path)
{
    const size_t n = 4 + str_span(str_sub(path, 4), "0-9");
    if (!str_starts(path, STR("/v1.")))
        return path;
    return n > 4 && n < path.n && path.p[n] == '/' ? str_sub(path, n) : path;
}

/* An image's name may have slashes, which clients send as they are: escaped, it is one segment. */
static struct str docker_escaped(struct arena *arena, struct str path)
{
    static const struct str before = STR("/images/"), behind = STR("/json");
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    if (!str_starts(path, before))
        return path;
    size_t end = path.n - (str_ends(path, behind) ? behind.n : 0);
    for (size_t i = 0; i < path.n; i++) {
        if (path.p[i] == '/' && i >= before.n && i < end)
            buf_append_cstr(&b, "%2F");
        else
            buf_append_char(&b, path.p[i]);
    }
    return buf_error(&b) ? path : arena_str(arena, buf_str(&b));
}

/* What there is in the place of a call that isn't there. */
static const char *docker_instead(struct str rest)
{
    static const struct {
        struct str path;
        const char *instead;
    } all[] = {{STR("/build"), ": 'cove docker build' builds"},
               {STR("/volumes"), ": 'cove volume' makes, lists and removes volumes"},
               {STR("/networks"), ": no container reaches another; the service's policy says what it reaches"},
               {STR("/events"), ": 'cove events' prints them"}};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        if (str_starts(rest, all[i].path))
            return all[i].instead;
    return "";
}

bool docker_serve(void *docker, struct http_request *req)
{
    struct docker_api *d = docker;
    struct str path = http_raw_path(req), rest = docker_unversioned(path);
    if (facade_serve_at(&d->facade, docker_routes, docker_n_routes, docker_escaped(http_arena(req), rest), req))
        return true;
    if (rest.p == path.p)
        return false;
    call_refuse(call_new(&d->facade, req, NULL), ERR_UNIMPLEMENTED, "%.*s %.*s is not supported%s",
                STR_ARG(http_method_name(req)), (int)MIN(rest.n, (size_t)100), rest.p, docker_instead(rest));
    return true;
}

struct docker_api *docker_new(const struct docker_config *config)
{
    struct docker_api *d = mem_new(struct docker_api);
    d->builder = config->builder;
    d->owner_uid = config->owner_uid;
    d->version = mem_strdup(config->version);
    facade_init(&d->facade, &docker_ops, config->core, config->refusals);
    return d;
}

void docker_free(struct docker_api *d)
{
    if (!d)
        return;
    docker_boxes_free(d);
    map_fini(&d->execs);
    facade_fini(&d->facade);
    MEM_FREE(d->version, d);
}
