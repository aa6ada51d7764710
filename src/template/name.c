/* SPDX-License-Identifier: Apache-2.0 */
#include "template/name.h"
#include "base/id.h"

static int clean(struct str text, const char *what, bool dots, char ret_text[static TEMPLATE_NAME_MAX + 1],
                 struct err *err)
{
    struct str s = str_trim(text);
    /* What begins as a flag does can hardly be named on a command line; a tag always has its name before it. */
    bool ok = s.n > 0 && s.n <= TEMPLATE_NAME_MAX && (s.p[0] != '-' || dots);
    for (size_t i = 0; ok && i < s.n; i++)
        ret_text[i] = str_lower(s.p[i]);
    if (!ok || !str_is_of(s, dots ? "A-Za-z0-9_.-" : "A-Za-z0-9_-")) {
        bool shown = str_is_utf8(text) && !str_has_nul(text);
        return err_set(err, ERR_INVALID_ARGUMENT, "invalid %s: %.*s", what, shown ? (int)MIN(text.n, (size_t)100) : 0,
                       text.p ? text.p : "");
    }
    ret_text[s.n] = '\0';
    return 0;
}

static bool is_uuid(const char *s)
{
    if (strlen(s) != ID_UUID_LEN)
        return false;
    for (size_t i = 0; i < ID_UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? s[i] != '-' : !strchr("0123456789abcdef", s[i]))
            return false;
    }
    return true;
}

int template_tag_parse(struct str text, char ret_tag[static TEMPLATE_NAME_MAX + 1], struct err *err)
{
    char tag[TEMPLATE_NAME_MAX + 1] = "";
    if (clean(text, "tag", true, tag, err) < 0)
        return -1;
    if (is_uuid(tag))
        return err_set(err, ERR_INVALID_ARGUMENT, "tag cannot be a UUID");
    memcpy(ret_tag, tag, strlen(tag) + 1);
    return 0;
}

int template_name_parse(struct str text, struct template_name *ret_name, struct err *err)
{
    struct template_name n = {.tag = TEMPLATE_TAG_DEFAULT};
    struct str rest = str_trim(text);
    ssize_t colon = str_find_char(rest, ':');
    if (colon >= 0) {
        if (clean(str_sub(rest, (size_t)colon + 1), "tag", true, n.tag, err) < 0)
            return -1;
        n.has_tag = strcmp(n.tag, TEMPLATE_TAG_DEFAULT) != 0;
        rest.n = (size_t)colon;
    }
    ssize_t slash = str_find_char(rest, '/');
    if (slash >= 0) {
        if (clean(str_n(rest.p, (size_t)slash), "namespace", false, n.space, err) < 0)
            return -1;
        rest = str_sub(rest, (size_t)slash + 1);
    }
    if (clean(rest, "template ID", false, n.name, err) < 0)
        return -1;
    *ret_name = n;
    return 0;
}
