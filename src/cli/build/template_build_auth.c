/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/build/template_build_auth.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdlib.h>

enum { CONFIG_MAX = 1 << 20, AUTH_MAX = 64 * 1024 };

#define DOCKER_HUB "docker.io"

/* What several names stand for. */
static struct str template_build_auth_host(struct str host)
{
    static const char hub[] = "index.docker.io registry-1.docker.io registry.hub.docker.com";
    return str_word(host, hub) < 0 ? host : STR(DOCKER_HUB);
}

const char *registry_of(struct arena *arena, const char *image)
{
    struct str name = str_of(image);
    ssize_t slash = str_find_char(name, '/');
    struct str host = slash < 0 ? STR("") : str_n(name.p, (size_t)slash);
    bool is_host = str_find_char(host, '.') >= 0 || str_find_char(host, ':') >= 0 || str_eqc(host, "localhost");
    host = is_host ? template_build_auth_host(host) : STR(DOCKER_HUB);
    return arena_strndup(arena, host.p, host.n);
}

/* A key of "auths": a host, or the address of its API. */
static bool is_of(const char *key, const char *registry)
{
    struct str s = str_of(key), path = STR("");
    if (str_starts(s, STR("https://")))
        s = str_sub(s, strlen("https://"));
    else if (str_starts(s, STR("http://")))
        s = str_sub(s, strlen("http://"));
    ssize_t slash = str_find_char(s, '/');
    if (slash >= 0) {
        path = str_sub(s, (size_t)slash);
        s.n = (size_t)slash;
    }
    bool is_api = !path.n || str_eqc(path, "/") || str_starts(path, STR("/v1")) || str_starts(path, STR("/v2"));
    return is_api && str_eqc(template_build_auth_host(s), registry);
}

static int wrong(struct err *err, const char *registry)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "its entry for %s is invalid", registry);
}

/* base64 of "user:password" */
static int decode(const char *text, const char *registry, struct arena *arena, struct registry_auth *ret_auth,
                  struct err *err)
{
    struct buf b = BUF_INIT(AUTH_MAX);
    int r = buf_append_unbase64(&b, str_of(text));
    struct str s = buf_str(&b);
    ssize_t colon = r < 0 ? -1 : str_find_char(s, ':');
    if (colon > 0 && !str_has_nul(s))
        *ret_auth = (struct registry_auth){.user = arena_strndup(arena, s.p, (size_t)colon),
                                           .password = arena_strndup(arena, s.p + colon + 1, s.n - (size_t)colon - 1)};
    if (b.data)
        mem_wipe(b.data, b.cap);
    buf_fini(&b);
    return colon > 0 && ret_auth->user ? 0 : wrong(err, registry);
}

static int read_entry(const json_t *entry, const char *registry, struct arena *arena, struct registry_auth *ret_auth,
                      struct err *err)
{
    const char *auth = json_string_value(json_object_get(entry, "auth")),
               *user = json_string_value(json_object_get(entry, "username")),
               *password = json_string_value(json_object_get(entry, "password"));
    if (json_object_get(entry, "identitytoken") || json_object_get(entry, "registrytoken"))
        return err_set(err, ERR_UNIMPLEMENTED,
                       "it has only a token for %s, which is not supported: give a user name and a password", registry);
    if (user && password) {
        *ret_auth = (struct registry_auth){arena_strdup(arena, user), arena_strdup(arena, password)};
        return 0;
    }
    return auth && *auth ? decode(auth, registry, arena, ret_auth, err) : 0;
}

/* A store of all credentials leaves an empty entry for each registry that it has some of. */
static bool has_helper(const json_t *config, const char *registry, bool has_entry)
{
    JSON_FOREACH_MEMBER (key, value, json_object_get(config, "credHelpers"))
        if (is_of(key, registry))
            return true;
    return has_entry && json_is_string(json_object_get(config, "credsStore"));
}

int registry_auth_parse(struct str text, const char *registry, struct arena *arena, struct registry_auth *ret_auth,
                        struct err *err)
{
    AUTO_JSON json_t *config = json_loadb(text.p ? text.p : "", text.n, JSON_REJECT_DUPLICATES, NULL);
    struct registry_auth found = {0};
    bool has_entry = false;
    if (!json_is_object(config))
        return err_set(err, ERR_INVALID_ARGUMENT, "it is not a JSON object");
    JSON_FOREACH_MEMBER (key, entry, json_object_get(config, "auths")) {
        if (found.user || !is_of(key, registry))
            continue;
        has_entry = true;
        if (read_entry(entry, registry, arena, &found, err) < 0)
            return -1;
    }
    if (!found.user && has_helper(config, registry, has_entry))
        return err_set(err, ERR_UNIMPLEMENTED,
                       "its credentials are in a credential helper, which is not supported: give a user name and "
                       "a password");
    *ret_auth = found;
    return 0;
}

int registry_auth_load(const char *file, const char *registry, struct arena *arena, struct registry_auth *ret_auth,
                       struct err *err)
{
    const char *dir = getenv("DOCKER_CONFIG"), *home = getenv("HOME");
    AUTO_FREE char *path = file          ? mem_strdup(file)
                           : dir && *dir ? mem_printf("%s/config.json", dir)
                                         : mem_printf("%s/.docker/config.json", home ? home : "");
    struct buf text = BUF_INIT(CONFIG_MAX);
    int r = fd_read_file(AT_FDCWD, path, &text);
    r = r < 0 ? err_errno(err, r, "read %s", path)
              : registry_auth_parse(buf_str(&text), registry, arena, ret_auth, err);
    if (r < 0 && text.data)
        (void)err_prefix(err, "%s", path);
    if (text.data)
        mem_wipe(text.data, text.cap);
    buf_fini(&text);
    return r;
}
