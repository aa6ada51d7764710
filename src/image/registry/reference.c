/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/reference.h"
#include "policy/hostname.h"
#include "policy/netaddr.h"

#define HUB "docker.io"
#define WORD "a-z0-9"

/* "name", "name:port", "[address]" or "[address]:port" in parts; the port's text is NULL when there is none. */
static bool split(struct str text, bool *ret_bracketed, struct str *ret_name, struct str *ret_port)
{
    *ret_port = STR_NULL;
    *ret_bracketed = str_starts(text, STR("["));
    ssize_t end = str_find_char(text, *ret_bracketed ? ']' : ':');
    if (*ret_bracketed) {
        if (end < 0)
            return false;
        *ret_name = str_n(text.p + 1, (size_t)end - 1);
        text = str_sub(text, (size_t)end + 1);
        end = text.n > 0 ? 0 : -1;
        if (text.n > 0 && text.p[0] != ':')
            return false;
    } else {
        *ret_name = str_n(text.p, end < 0 ? text.n : (size_t)end);
    }
    if (end >= 0)
        *ret_port = str_n(text.p + end + 1, text.n - (size_t)end - 1);
    return true;
}

bool reference_split_host(struct str text, char ret_name[static REFERENCE_HOST_MAX], uint16_t *ret_port)
{
    struct str name, port;
    char normal[HOSTNAME_MAX + 1];
    struct netaddr addr;
    uint64_t number = 0;
    bool bracketed;
    if (!split(text, &bracketed, &name, &port))
        return false;
    if (port.p && (port.n == 0 || port.n > 5 || str_to_u64(port, &number) < 0 || number == 0 || number > 65535))
        return false;
    if (netaddr_parse(name, &addr)) {
        if ((addr.family == 6) != bracketed)
            return false;
        netaddr_print(&addr, normal);
    } else if (bracketed || !hostname_normalise(name, normal)) {
        return false;
    }
    (void)snprintf(ret_name, REFERENCE_HOST_MAX, "%s", normal);
    *ret_port = (uint16_t)number;
    return true;
}

static bool names_host(struct str part)
{
    return str_find_char(part, '.') >= 0 || str_find_char(part, ':') >= 0 || str_eq(part, STR("localhost"));
}

static bool take_host(struct str text, struct reference *r)
{
    char name[REFERENCE_HOST_MAX];
    uint16_t port;
    if (!reference_split_host(text, name, &port))
        return false;
    const char *open = strchr(name, ':') ? "[" : "", *close = strchr(name, ':') ? "]" : "";
    int n = port ? snprintf(r->host, sizeof(r->host), "%s%s%s:%u", open, name, close, (unsigned)port)
                 : snprintf(r->host, sizeof(r->host), "%s%s%s", open, name, close);
    return n > 0 && (size_t)n < sizeof(r->host) &&
           names_host(str_of(r->host)); /* a dot at its end may have made it one */
}

/* Words of letters and digits, with ".", "_", "__" or dashes in between. */
static bool is_component(struct str part)
{
    if (part.n == 0 || !str_set_has(WORD, part.p[0]) || !str_set_has(WORD, part.p[part.n - 1]))
        return false;
    for (size_t i = 1; i < part.n; i++) {
        char c = part.p[i], before = part.p[i - 1];
        if (str_set_has(WORD, c))
            continue;
        if (c != '.' && c != '_' && c != '-')
            return false;
        if (!str_set_has(WORD, before) && !(c == '-' && before == '-') &&
            !(c == '_' && before == '_' && str_set_has(WORD, part.p[i - 2])))
            return false;
    }
    return true;
}

static bool is_path(struct str path)
{
    struct str part;
    if (path.n == 0 || path.n >= REFERENCE_PATH_MAX || path.p[path.n - 1] == '/')
        return false;
    while (str_split(&path, '/', &part))
        if (!is_component(part))
            return false;
    return true;
}

static bool is_tag(struct str tag)
{
    return tag.n > 0 && tag.n < REFERENCE_TAG_MAX && str_set_has("A-Za-z0-9_", tag.p[0]) &&
           str_is_of(tag, "A-Za-z0-9_.-");
}

static void reference_copy(char *to, struct str from)
{
    memcpy(to, from.p, from.n);
    to[from.n] = '\0';
}

/* Cuts what follows the last `sep` off, if there is one behind the last slash. */
static bool cut_last(struct str *text, char sep, struct str *ret_rest)
{
    for (size_t i = text->n; i-- > 0;) {
        if (text->p[i] == sep) {
            *ret_rest = str_sub(*text, i + 1);
            text->n = i;
            return true;
        }
        if (text->p[i] == '/')
            break;
    }
    return false;
}

int reference_parse(struct str text, struct reference *ret_ref, struct err *err)
{
    struct reference r = {.host = HUB};
    struct str rest = text, digest = STR_NULL, tag = STR_NULL;
    if (cut_last(&rest, '@', &digest)) {
        if (!digest_is(digest))
            return err_set(err, ERR_INVALID_ARGUMENT,
                           "the image's digest is not \"sha256:\" and 64 hexadecimal digits");
        reference_copy(r.digest, digest);
    }
    if (cut_last(&rest, ':', &tag)) {
        if (!is_tag(tag))
            return err_set(err, ERR_INVALID_ARGUMENT,
                           "the image's tag is not up to 128 of letters, digits, \"_\", \".\", \"-\"");
        reference_copy(r.tag, tag);
    }
    ssize_t slash = str_find_char(rest, '/');
    struct str host = slash < 0 ? STR_NULL : str_n(rest.p, (size_t)slash);
    if (slash >= 0 && names_host(host)) {
        if (!take_host(host, &r))
            return err_set(err, ERR_INVALID_ARGUMENT, "the registry in the image's name is not host[:port]");
        rest = str_sub(rest, (size_t)slash + 1);
    }
    if (strcmp(r.host, "index.docker.io") == 0 || strcmp(r.host, REFERENCE_HUB_SERVER) == 0)
        (void)snprintf(r.host, sizeof(r.host), "%s", HUB);
    bool library = strcmp(r.host, HUB) == 0 && str_find_char(rest, '/') < 0;
    if (!is_path(rest) || (library && rest.n + strlen("library/") >= sizeof(r.path)))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "not an image's name: it is [host[:port]/]path[:tag][@digest], the path in lower case");
    (void)snprintf(r.path, sizeof(r.path), "%s%.*s", library ? "library/" : "", STR_ARG(rest));
    if (!r.tag[0] && !r.digest[0])
        memcpy(r.tag, "latest", 7);
    *ret_ref = r;
    return 0;
}

const char *reference_server(const struct reference *r)
{
    return strcmp(r->host, HUB) == 0 ? REFERENCE_HUB_SERVER : r->host;
}
