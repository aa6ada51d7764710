/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/env/devcontainer.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/build/build_context.h"
#include "cli/build/dockerfile.h"
#include "cli/build/template_build.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/stat.h>

enum { NAME_BYTES = 16 }; /* nobody finds another file that has the same name */

static const char *const devcontainer_files[] = {".devcontainer/devcontainer.json", ".devcontainer.json"};

/* What only an editor looks at, or what is so anyway: the copy lies at its path, and the sandbox ends by its own
 * rules. */
static const char devcontainer_ignored[] =
    "$schema name customizations extensions settings portsAttributes waitFor userEnvProbe otherPortsAttributes "
    "shutdownAction hostRequirements overrideCommand secrets workspaceMount updateRemoteUserUID init appPort "
    "workspaceFolder";

static const char *const devcontainer_commands[] = {"onCreateCommand", "updateContentCommand", "postCreateCommand",
                                                    "postStartCommand"};

/* ---- what a file says ---- */

/* Blanks comments, and commas before an end, out of a copy. */
static void devcontainer_strip(char *p, size_t n)
{
    size_t comma = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '"') {
            for (i++; i < n && p[i] != '"'; i++)
                i += p[i] == '\\';
            comma = SIZE_MAX;
        } else if (p[i] == '/' && i + 1 < n && (p[i + 1] == '/' || p[i + 1] == '*')) {
            const bool is_line = p[i + 1] == '/';
            const size_t from = i;
            for (i += 2; i < n && !(is_line ? p[i] == '\n' : p[i] == '/' && p[i - 1] == '*' && i > from + 2); i++)
                ;
            memset(p + from, ' ', MIN(i + 1, n) - from);
        } else if (p[i] == ',') {
            comma = i;
        } else if ((p[i] == '}' || p[i] == ']') && comma != SIZE_MAX) {
            p[comma] = ' ';
        } else if (!strchr(" \t\r\n", p[i])) {
            comma = SIZE_MAX;
        }
    }
}

static int devcontainer_wrong(struct err *err, const char *key, const char *what)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "devcontainer.json: %.64s: %s", key, what);
}

/* NULL: it stands for something that isn't there. */
static char *devcontainer_expand(const char *text, const char *top)
{
    static const char *const names[] = {"${localWorkspaceFolder}", "${containerWorkspaceFolder}",
                                        "${localWorkspaceFolderBasename}", "${containerWorkspaceFolderBasename}"};
    static const char *const absent[] = {"${localEnv:", "${env:", "${containerEnv:", "${devcontainerId}"};
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
        if (strstr(text, absent[i]))
            return NULL;
    while (*text) {
        size_t i = 0;
        while (i < ARRAY_SIZE(names) && strncmp(text, names[i], strlen(names[i])) != 0)
            i++;
        if (i < ARRAY_SIZE(names))
            buf_append_cstr(&b, i < 2 ? top : strrchr(top, '/') + 1);
        else
            buf_append_char(&b, *text);
        text += i < ARRAY_SIZE(names) ? strlen(names[i]) : 1;
    }
    buf_append_char(&b, '\0');
    return buf_error(&b) ? NULL : buf_take(&b);
}

static int devcontainer_texts(const char *key, const json_t *from, const char *top, json_t *to, struct err *err)
{
    if (!json_is_object(from))
        return devcontainer_wrong(err, key, "not an object");
    JSON_FOREACH_MEMBER (name, one, from) {
        AUTO_FREE char *text = json_is_string(one) ? devcontainer_expand(json_string_value(one), top) : NULL;
        if (!text)
            return devcontainer_wrong(err, name, "not a text, or one with a variable that isn't there");
        (void)json_object_set_new(to, name, json_string(text));
    }
    return 0;
}

/* A line for the shell, words, or several of these under names, which run one after the other. */
static int devcontainer_command(const char *key, const json_t *from, const char *top, json_t *setup, struct err *err)
{
    AUTO_ARENA struct arena a = ARENA_INIT;
    AUTO_BUF struct buf line = BUF_INIT(1 << 20);
    JSON_FOREACH_MEMBER (name, one, from)
        if (json_is_object(one) || devcontainer_command(name, one, top, setup, err) < 0)
            return json_is_object(one) ? devcontainer_wrong(err, key, "no command") : -1;
    if (!from || json_is_object(from) || json_is_null(from))
        return 0;
    JSON_FOREACH_AT (i, one, from) {
        if (!json_is_string(one))
            return devcontainer_wrong(err, key, "no command");
        buf_printf(&line, "%s%s", i ? " " : "", dockerfile_quote(&a, str_of(json_string_value(one))));
    }
    buf_append_cstr(&line, json_is_string(from) ? json_string_value(from) : "");
    buf_append_char(&line, '\0');
    AUTO_FREE char *text = buf_error(&line) ? NULL : devcontainer_expand(buf_data(&line), top);
    if (!text || !*text)
        return devcontainer_wrong(err, key, "no command, or one with a variable that isn't there");
    (void)json_array_append_new(setup, json_string(text));
    return 0;
}

static int devcontainer_ports(const char *key, const json_t *from, json_t *ports, struct err *err)
{
    JSON_FOREACH (one, from) {
        const json_int_t port = json_integer_value(one); /* a name of another container has none */
        if (port < 1 || port > UINT16_MAX || json_array_size(ports) >= 64)
            return devcontainer_wrong(err, key, "a port is a number from 1 to 65535");
        (void)json_array_append(ports, one);
    }
    return json_is_array(from) ? 0 : devcontainer_wrong(err, key, "not a list");
}

static int devcontainer_build(const json_t *from, const char *top, json_t *to, struct err *err)
{
    json_t *build = json_pack("{s:s,s:s,s:{}}", "dockerfile", "Dockerfile", "context", ".", "args");
    (void)json_object_set_new(to, "build", build);
    JSON_FOREACH_MEMBER (key, value, from) {
        if (strcmp(key, "args") == 0 && devcontainer_texts(key, value, top, json_object_get(build, "args"), err) < 0)
            return -1;
        if (strcmp(key, "args") == 0 || strcmp(key, "cacheFrom") == 0)
            continue;
        if ((strcmp(key, "dockerfile") != 0 && strcmp(key, "context") != 0) || !json_is_string(value))
            return err_set(err, ERR_UNIMPLEMENTED, "devcontainer.json: build.%.64s isn't supported", key);
        (void)json_object_set(build, key, value);
    }
    return json_is_object(from) ? 0 : devcontainer_wrong(err, "build", "not an object");
}

static int devcontainer_take(const char *key, const json_t *value, const char *top, json_t *o, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(devcontainer_commands); i++)
        if (strcmp(key, devcontainer_commands[i]) == 0)
            return 0; /* they have an order of their own */
    if (str_word(str_of(key), "image remoteUser containerUser") >= 0)
        return json_string_length(value) ? 0 : devcontainer_wrong(err, key, "not a text, or empty");
    if (strcmp(key, "build") == 0)
        return devcontainer_build(value, top, o, err);
    if (strcmp(key, "containerEnv") == 0 || strcmp(key, "remoteEnv") == 0)
        return devcontainer_texts(key, value, top, json_object_get(o, "env"), err);
    if (strcmp(key, "forwardPorts") == 0)
        return devcontainer_ports(key, value, json_object_get(o, "ports"), err);
    if (str_word(str_of(key), devcontainer_ignored) >= 0)
        return 0;
    if (strcmp(key, "features") == 0 && json_is_object(value)) {
        const char *feature = json_object_iter_key(json_object_iter((json_t *)value));
        return feature
                   ? err_set(
                         err, ERR_UNIMPLEMENTED,
                         "devcontainer.json: features aren't supported, so %.100s is not installed: a Dockerfile can",
                         feature)
                   : 0;
    }
    return err_set(err, ERR_UNIMPLEMENTED, "devcontainer.json: %.64s isn't supported", key);
}

int devcontainer_parse(struct str text, const char *top, json_t **ret_object, struct err *err)
{
    AUTO_JSON json_t *o = json_pack("{s:[],s:{},s:[]}", "setup", "env", "ports"), *given = NULL;
    AUTO_FREE char *copy =
        text.n && text.n <= DEVCONTAINER_MAX && !str_has_nul(text) ? mem_strndup(text.p, text.n) : NULL;
    json_error_t why = {0};
    if (copy) {
        devcontainer_strip(copy, text.n);
        given = json_loadb(copy, text.n, JSON_REJECT_DUPLICATES, &why);
    }
    if (!json_is_object(given))
        return err_set(err, ERR_INVALID_ARGUMENT, "devcontainer.json: line %d: %.100s", why.line,
                       given || !copy ? "no object" : why.text);
    JSON_FOREACH_MEMBER (key, value, given)
        if (devcontainer_take(key, value, top, o, err) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_SIZE(devcontainer_commands); i++)
        if (devcontainer_command(devcontainer_commands[i], json_object_get(given, devcontainer_commands[i]), top,
                                 json_object_get(o, "setup"), err) < 0)
            return -1;
    const json_t *user = json_object_get(given, "remoteUser");
    (void)json_object_set(o, "image", json_object_get(given, "image"));
    (void)json_object_set(o, "user", user ? (json_t *)user : json_object_get(given, "containerUser"));
    if (!json_object_get(o, "image") == !json_object_get(o, "build"))
        return devcontainer_wrong(err, "image", "it needs either an image or a build");
    *ret_object = TAKE_PTR(o);
    return 0;
}

/* ---- of a commit ---- */

/* 1: there is one; its directory in the commit is *ret_dir, "" or with a slash at its end. */
static int devcontainer_find(struct repo *r, const char *commit, json_t **ret_object, const char **ret_dir)
{
    for (size_t i = 0; i < ARRAY_SIZE(devcontainer_files); i++) {
        AUTO_BUF struct buf text = BUF_INIT(DEVCONTAINER_MAX);
        int found = repo_file(r, commit, devcontainer_files[i], &text);
        *ret_dir = i ? "" : ".devcontainer/";
        if (found > 0 && devcontainer_parse(buf_str(&text), r->top, ret_object, &r->ctx->err) < 0)
            return -1;
        if (found)
            return found;
    }
    return 0;
}

/* The path in the commit of what a build names. mem_free(); NULL: it leads out of the commit. */
static char *devcontainer_path(const char *dir, const char *name)
{
    AUTO_FREE char *whole = mem_printf("%s%s", dir, name);
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct str rest = str_of(whole), part;
    while (rest.n && str_split(&rest, '/', &part)) {
        if (!str_eqc(part, "..")) {
            if (part.n && !str_eqc(part, "."))
                buf_printf(&b, "%s%.*s", buf_len(&b) ? "/" : "", STR_ARG(part));
            continue;
        }
        if (!buf_len(&b))
            return NULL;
        while (b.end > b.start && b.data[b.end - 1] != '/')
            b.end--;
        b.end -= b.end > b.start;
    }
    buf_append_char(&b, '\0');
    return buf_error(&b) || *name == '/' ? NULL : buf_take(&b);
}

/* Another image, Dockerfile, context or argument is another template. */
static char *devcontainer_name(struct repo *r, const char *commit, const json_t *o, const char *dir)
{
    const json_t *build = json_object_get(o, "build");
    AUTO_FREE char *context =
        build ? devcontainer_path(dir, json_string_value(json_object_get(build, "context"))) : NULL;
    AUTO_FREE char *tree = context ? mem_printf("%s:%s", commit, context) : NULL;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), id = BUF_INIT(256);
    unsigned char hash[SHA256_DIGEST_LENGTH];
    if (build &&
        (!tree || REPO_ASK(r, REPO_OURS, &id, "rev-parse", "--verify", "--quiet", "--end-of-options", tree) < 0)) {
        (void)devcontainer_wrong(&r->ctx->err, "build.context", "the commit has no such directory");
        return NULL;
    }
    AUTO_FREE char *said =
        json_dumps(build ? build : json_object_get(o, "image"), JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    buf_printf(&b, "%s %.*s", said ? said : "", STR_ARG(repo_line(&id)));
    (void)SHA256((const unsigned char *)buf_data(&b), buf_len(&b), hash);
    buf_clear(&b);
    buf_append_cstr(&b, DEVCONTAINER_PREFIX);
    buf_append_hex(&b, str_n(hash, NAME_BYTES));
    return buf_take(&b);
}

int devcontainer_read(struct repo *r, const char *commit, json_t *spec, json_t **ret_setup)
{
    AUTO_JSON json_t *o = NULL;
    const char *dir = "";
    int found = devcontainer_find(r, commit, &o, &dir);
    AUTO_FREE char *name = found > 0 ? devcontainer_name(r, commit, o, dir) : NULL;
    AUTO_BUF struct buf ports = BUF_INIT(4096);
    if (found <= 0 || !name)
        return found ? -1 : 0;
    JSON_FOREACH_AT (i, port, json_object_get(o, "ports"))
        buf_printf(&ports, "%s%d", i ? "," : "", (int)json_integer_value(port));
    buf_append_char(&ports, '\0');
    json_t *labels = json_pack("{s:O*}", "cove.user", json_object_get(o, "user"));
    if (buf_len(&ports) > 1)
        (void)json_object_set_new(labels, "cove.ports", json_string(buf_data(&ports)));
    (void)json_object_set_new(spec, "metadata", labels);
    (void)json_object_set_new(spec, "template", json_string(name));
    (void)json_object_set(spec, "env", json_object_get(o, "env"));
    *ret_setup = json_incref(json_object_get(o, "setup"));
    return 0;
}

/* ---- its template ---- */

/* The context as it is in the commit, in a directory of ours. Attributes of files mean nothing there: no filter is
 * configured. */
static int devcontainer_check_out(struct repo *r, const char *commit, const char *context, const char *to)
{
    AUTO_FREE char *tree = mem_printf("%s:%s", commit, context), *work = mem_printf("--work-tree=%s", to);
    if (mkdir(to, 0700) < 0)
        return err_errno(&r->ctx->err, errno, "make %s", to);
    return REPO_GIT(r, REPO_OURS, "read-tree", tree) < 0 ? -1 : REPO_GIT(r, REPO_OURS, work, "checkout-index", "--all");
}

static int devcontainer_make(struct repo *r, const char *commit, const char *name)
{
    struct template_build_options o = {.name = name};
    AUTO_JSON json_t *file = NULL;
    AUTO_FREE char *to = mem_printf("%s/context", r->ours);
    const char *dir = "";
    if (devcontainer_find(r, commit, &file, &dir) <= 0)
        return -1;
    const json_t *build = json_object_get(file, "build");
    AUTO_FREE char *context =
                       build ? devcontainer_path(dir, json_string_value(json_object_get(build, "context"))) : NULL,
                   *path =
                       build ? devcontainer_path(dir, json_string_value(json_object_get(build, "dockerfile"))) : NULL;
    const size_t n = context ? strlen(context) : 0;
    if (build && (!path || strncmp(path, context, n) != 0 || (n && path[n] != '/')))
        return devcontainer_wrong(&r->ctx->err, "build.dockerfile", "it must lie below the build's context");
    if (build ? devcontainer_check_out(r, commit, context, to) < 0 : mkdir(to, 0700) < 0)
        return -1;
    AUTO_CLOSE int at = build ? open(to, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    AUTO_CLOSE int fd = build ? build_context_beneath(at, path + n + (n > 0), O_PATH, true) : -1;
    if (build && fd < 0) /* a link to a file here, of which complaints about a line would tell */
        return devcontainer_wrong(&r->ctx->err, "build.dockerfile", "the build's context has no such file");
    AUTO_FREE char *dockerfile = build ? mem_printf("%s/%s", to, path + n + (n > 0)) : NULL;
    o.context = to;
    o.file = dockerfile;
    o.from_image = json_string_value(json_object_get(file, "image"));
    JSON_FOREACH_MEMBER (key, value, json_object_get(build, "args"))
        if (o.n_build_args < ARRAY_SIZE(o.build_args))
            o.build_args[o.n_build_args++] = mem_printf("%s=%s", key, json_string_value(value));
    int status = template_build_run(r->ctx, &o);
    for (size_t i = 0; i < o.n_build_args; i++)
        mem_free((char *)o.build_args[i]);
    return status == STATUS_OK ? 0 : -1;
}

struct devcontainer_wanted {
    struct repo *repo;
    const char *commit, *template;
};

static int devcontainer_build_wanted(struct context *ctx, void *arg)
{
    const struct devcontainer_wanted *w = arg;
    if (devcontainer_make(w->repo, w->commit, w->template) == 0)
        return 0;
    return ctx->err.code != ERR_OK
               ? -1
               : err_set(&ctx->err, ERR_FAILED_PRECONDITION, "the template %s wasn't built", w->template);
}

int devcontainer_prepare(struct repo *r, struct service *s, const char *commit, const char *template)
{
    struct devcontainer_wanted w = {r, commit, template};
    return str_starts(str_of(template), STR(DEVCONTAINER_PREFIX))
               ? template_build_first(r->ctx, s, template, false, devcontainer_build_wanted, &w)
               : 0;
}
