/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which headers a sentinel becomes its secret. Servers quote what they can't make sense of in any header ("'KEY' is
 * no version of this API", "no such organization: KEY"), and return some headers by custom (Origin, Idempotency-Key,
 * X-Request-Id); only what headers for credentials hold do they keep to themselves. So unless the policy names headers,
 * it is replaced in these alone, which are known by their names; elsewhere a sentinel goes out as it is.
 */
#include "policy/policy_internal.h"

static bool ends_in_one_of(struct str word, const struct str *ends, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_ends(word, ends[i]))
            return true;
    return false;
}

#define WORD(literal)                                                                                                  \
    {                                                                                                                  \
        literal, sizeof(literal) - 1                                                                                   \
    }

/* "X-Goog-Api-Key", "private-token", "apikey", "DD-APPLICATION-KEY" */
static bool carries_credentials(struct str name)
{
    static const struct str credentials[] = {WORD("auth"),        WORD("authorization"), WORD("authentication"),
                                             WORD("key"),         WORD("token"),         WORD("secret"),
                                             WORD("password"),    WORD("passphrase"),    WORD("credential"),
                                             WORD("credentials"), WORD("cookie")};
    static const struct str others[] = {WORD("cache"), WORD("csrf"), WORD("idempotency"), WORD("surrogate"),
                                        WORD("xsrf")};
    char text[POLICY_HEADER_NAME_MAX];
    bool found = false;
    if (name.n > sizeof(text))
        return false;
    for (size_t i = 0; i < name.n; i++)
        text[i] = str_lower(name.p[i]);
    name.p = text;
    if (str_starts(name, STR("sec-")) || str_starts(name, STR("access-control-")))
        return false;
    while (name.n > 0) {
        const struct str word = str_n(name.p, str_span(name, "a-z0-9"));
        if (word.n > 0 && ends_in_one_of(word, others, ARRAY_SIZE(others)))
            return false;
        found = found || ends_in_one_of(word, credentials, ARRAY_SIZE(credentials));
        name = str_sub(name, MIN(word.n + 1, name.n));
    }
    return found;
}

bool policy_placeholder_is_for(const struct policy_placeholder *p, struct str header)
{
    if (!(p->places & POLICY_IN_HEADER))
        return false;
    for (size_t i = 0; i < p->n_headers; i++)
        if (str_eq_nocase(str_of(p->headers[i]), header) || str_eqc(STR("*"), p->headers[i]))
            return true;
    return p->n_headers == 0 && carries_credentials(header);
}
