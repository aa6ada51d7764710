/* SPDX-License-Identifier: Apache-2.0 */
#include "build/context.h"
#include "base/mem.h"

#include <openssl/evp.h>

/* What a login shell would have; for values that extend it. */
#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { VALUE_MAX = 128 * 1024 };

void build_context_fini(struct build_context *c)
{
    for (size_t i = 0; i < c->n_envs; i++) {
        mem_free(c->envs[i].name);
        mem_free(c->envs[i].value);
    }
    c->n_envs = 0;
    mem_free(TAKE_PTR(c->workdir));
    mem_free(TAKE_PTR(c->user));
    mem_free(TAKE_PTR(c->image));
}

const char *build_context_get(const struct build_context *c, struct str name)
{
    for (size_t i = 0; i < c->n_envs; i++)
        if (str_eqc(name, c->envs[i].name))
            return c->envs[i].value;
    return NULL;
}

int build_context_set(struct build_context *c, struct str name, struct str value, struct err *err)
{
    size_t at = c->n_envs, bytes = name.n + value.n;
    for (size_t i = 0; i < c->n_envs; i++)
        if (str_eqc(name, c->envs[i].name))
            at = i;
        else
            bytes += strlen(c->envs[i].name) + strlen(c->envs[i].value);
    if (at == BUILD_ENVS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "more than %d variables", BUILD_ENVS_MAX);
    if (bytes > BUILD_ENVS_BYTES)
        return err_set(err, ERR_INVALID_ARGUMENT, "the template's variables are larger than %d KiB",
                       BUILD_ENVS_BYTES / 1024);
    if (at == c->n_envs)
        c->envs[c->n_envs++].name = mem_strndup(name.p, name.n);
    else
        mem_free(c->envs[at].value);
    c->envs[at].value = mem_strndup(value.p ? value.p : "", value.n);
    return 0;
}

static void append_variable(const struct build_context *c, struct str name, struct buf *b)
{
    const char *value = build_context_get(c, name);
    if (!value && str_eqc(name, "PATH"))
        value = PATH_DEFAULT;
    if (value)
        buf_append_cstr(b, value);
}

int build_context_set_expanded(struct build_context *c, struct str name, struct str value, struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(VALUE_MAX);
    for (size_t i = 0; i < value.n;) {
        struct str rest = str_sub(value, i);
        bool braced = rest.n > 1 && rest.p[1] == '{';
        size_t from = braced ? 2 : 1, n = rest.p[0] == '$' ? str_span_variable(str_sub(rest, from)) : 0;
        if (rest.p[0] == '\\' && rest.n > 1 && rest.p[1] == '$') {
            buf_append_char(&b, '$');
            i += 2;
            continue;
        }
        if (n == 0 || (braced && (from + n == rest.n || rest.p[from + n] != '}'))) {
            buf_append_char(&b, rest.p[0]);
            i++;
            continue;
        }
        append_variable(c, str_n(rest.p + from, n), &b);
        i += from + n + braced;
    }
    if (buf_error(&b) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "the value of %.64s is larger than 128 KiB", name.p);
    return build_context_set(c, name, buf_str(&b), err);
}

int build_context_set_lines(struct build_context *c, const char *const *lines, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        struct str line = str_of(lines[i]);
        ssize_t eq = str_find_char(line, '=');
        if (eq > 0 && build_context_set(c, str_n(line.p, (size_t)eq), str_sub(line, (size_t)eq + 1), err) < 0)
            return -1;
    }
    return 0;
}

static void context_replace(char **slot, const char *text)
{
    char *copy = text && *text ? mem_strdup(text) : NULL;
    mem_free(*slot);
    *slot = copy;
}

void build_context_set_user(struct build_context *c, const char *user)
{
    context_replace(&c->user, user);
}

void build_context_set_workdir(struct build_context *c, const char *workdir)
{
    context_replace(&c->workdir, workdir);
}

void build_context_set_image(struct build_context *c, const char *image)
{
    context_replace(&c->image, image);
}

void build_context_format(const struct build_context *c, struct buf *b)
{
    buf_append_cstr(b, "{\"envs\":[");
    for (size_t i = 0; i < c->n_envs; i++) {
        buf_append_cstr(b, i ? ",[" : "[");
        buf_append_json_string(b, str_of(c->envs[i].name));
        buf_append_char(b, ',');
        buf_append_json_string(b, str_of(c->envs[i].value));
        buf_append_char(b, ']');
    }
    buf_append_cstr(b, "],\"workdir\":");
    buf_append_json_string(b, str_of(c->workdir ? c->workdir : ""));
    buf_append_cstr(b, ",\"user\":");
    buf_append_json_string(b, str_of(c->user ? c->user : ""));
    if (c->image) {
        buf_append_cstr(b, ",\"image\":");
        buf_append_json_string(b, str_of(c->image));
    }
    buf_append_char(b, '}');
}

static int parse_into(struct build_context *c, const json_t *root)
{
    const json_t *envs = json_object_get(root, "envs");
    struct err ignored;
    JSON_FOREACH (pair, envs) {
        const char *name = json_string_value(json_array_get(pair, 0)),
                   *value = json_string_value(json_array_get(pair, 1));
        if (!name || !value || build_context_set(c, str_of(name), str_of(value), &ignored) < 0)
            return -EINVAL;
    }
    build_context_set_workdir(c, json_string_value(json_object_get(root, "workdir")));
    build_context_set_user(c, json_string_value(json_object_get(root, "user")));
    build_context_set_image(c, json_string_value(json_object_get(root, "image")));
    return 0;
}

int build_context_parse(struct build_context *c, const char *text)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    build_context_fini(c);
    int r = json_is_object(root) ? parse_into(c, root) : -EINVAL;
    json_decref(root);
    return r;
}

/* Each part with its length in front: no two lists of parts are the same bytes. */
void build_key_add(char key[static BUILD_KEY_LEN + 1], const struct str *parts, size_t n)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    assert(ctx);
    int ok = EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) && EVP_DigestUpdate(ctx, key, strlen(key));
    for (size_t i = 0; i < n; i++) {
        uint64_t len = parts[i].n;
        ok = ok && EVP_DigestUpdate(ctx, &len, sizeof(len)) &&
             (parts[i].n == 0 || EVP_DigestUpdate(ctx, parts[i].p, parts[i].n));
    }
    ok = ok && EVP_DigestFinal_ex(ctx, digest, &size);
    EVP_MD_CTX_free(ctx);
    assert(ok && size * 2 == BUILD_KEY_LEN);
    str_hex(digest, size, key);
}

void build_key_add_step(char key[static BUILD_KEY_LEN + 1], const struct build_step *step)
{
    struct str parts[2] = {str_of(build_step_name(step->type)), str_of(step->files_hash)};
    build_key_add(key, parts, 2);
    build_key_add(key, step->args, step->n_args);
}
