/* SPDX-License-Identifier: Apache-2.0 */
#include "config/domain.h"

static bool domain_is_label(struct str s)
{
    return s.n > 0 && s.n <= 63 && s.p[0] != '-' && s.p[s.n - 1] != '-' && str_is_of(s, "a-z0-9-");
}

bool domain_is_name(struct str s)
{
    struct str rest = s, label = STR_NULL;
    size_t labels = 0;
    bool ok = s.n > 0 && s.n <= DOMAIN_NAME_MAX && s.p[s.n - 1] != '.';
    while (ok && str_split(&rest, '.', &label)) {
        ok = domain_is_label(label);
        labels++;
    }
    /* Else it is an address. */
    return ok && labels >= 2 && !str_set_has("0-9", label.p[0]);
}

static bool line_of(struct str *text, struct str name, struct str *ret_value)
{
    struct str line;
    if (!str_split(text, '\n', &line) || !str_starts(line, name))
        return false;
    *ret_value = str_trim(str_sub(line, name.n));
    return true;
}

int domain_parse(struct str text, struct domain *ret_domain)
{
    struct str name, source;
    if (!line_of(&text, STR("domain:"), &name) || !line_of(&text, STR("source:"), &source) || !domain_is_name(name) ||
        !(str_eqc(source, "own") || str_eqc(source, "given")) || !str_starts(text, STR("-----BEGIN ")))
        return -EINVAL;
    *ret_domain = (struct domain){name, text, str_eqc(source, "own")};
    return 0;
}

int domain_format(const struct domain *d, struct buf *to)
{
    (void)buf_printf(to, "domain: %.*s\nsource: %s\n", STR_ARG(d->name), d->is_own ? "own" : "given");
    (void)buf_append_str(to, d->pem);
    return buf_error(to);
}
