/* SPDX-License-Identifier: Apache-2.0 */
#include "base/path.h"

/* Appends the components of s to out[0..*n), which holds a cleaned path. */
static int append_components(struct str s, char *out, size_t *n)
{
    struct str part;
    while (str_split(&s, '/', &part)) {
        if (part.n == 0 || str_eqc(part, "."))
            continue;
        bool absolute = *n && out[0] == '/';
        if (str_eqc(part, "..")) {
            struct str have = str_n(out, *n);
            if (absolute && *n == 1)
                continue;
            if (*n && !str_eqc(path_base(have), "..")) {
                const char *slash = memrchr(out, '/', *n);
                *n = !slash ? 0 : slash == out ? 1 : (size_t)(slash - out);
                continue;
            }
        }
        bool needs_slash = *n && out[*n - 1] != '/';
        if (*n + needs_slash + part.n >= PATH_TEXT_MAX)
            return -ENAMETOOLONG;
        if (needs_slash)
            out[(*n)++] = '/';
        memcpy(out + *n, part.p, part.n);
        *n += part.n;
    }
    return 0;
}

int path_join(struct str base, struct str rest, char ret_path[static PATH_TEXT_MAX])
{
    char out[PATH_TEXT_MAX];
    size_t n = 0;
    if ((base.n == 0 && rest.n == 0) || str_has_nul(base) || str_has_nul(rest))
        return -EINVAL;
    if (rest.n && rest.p[0] == '/')
        base = STR_NULL;
    if ((base.n ? base : rest).p[0] == '/')
        out[n++] = '/';
    int r = append_components(base, out, &n);
    if (r == 0)
        r = append_components(rest, out, &n);
    if (r < 0)
        return r;
    if (n == 0)
        out[n++] = '.';
    memcpy(ret_path, out, n);
    ret_path[n] = 0;
    return 0;
}

int path_clean(struct str path, char ret_path[static PATH_TEXT_MAX])
{
    return path_join(STR_NULL, path, ret_path);
}

static struct str strip_slashes(struct str s)
{
    while (s.n > 1 && s.p[s.n - 1] == '/')
        s.n--;
    return s;
}

bool path_is_below(struct str path, struct str directory)
{
    return directory.n == 1 || (str_starts(path, directory) && (path.n == directory.n || path.p[directory.n] == '/'));
}

struct str path_base(struct str path)
{
    path = strip_slashes(path);
    const char *slash = path.n ? memrchr(path.p, '/', path.n) : NULL;
    if (!slash || path.n == 1)
        return path;
    return str_sub(path, (size_t)(slash - path.p) + 1);
}

struct str path_dir(struct str path)
{
    path = strip_slashes(path);
    const char *slash = path.n ? memrchr(path.p, '/', path.n) : NULL;
    if (!slash)
        return STR(".");
    return strip_slashes(str_n(path.p, slash == path.p ? 1 : (size_t)(slash - path.p)));
}
