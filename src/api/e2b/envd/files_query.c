/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/files_query.h"
#include "http/url.h"

int files_query_parse(struct str query, struct arena *arena, struct files_query *ret_query, struct err *err)
{
    struct files_query q = {.user = STR("")};
    struct str expiration = STR_NULL, user = STR_NULL;
    struct {
        const char *name;
        struct str *value;
    } const known[] = {
        {"path", &q.path}, {"username", &user}, {"signature", &q.signature}, {"signature_expiration", &expiration}};
    struct url_param param;
    while (url_query_next(&query, &param)) {
        struct str name, value;
        if (url_decode(arena, param.name, URL_QUERY, &name) < 0 ||
            url_decode(arena, param.value.p ? param.value : STR(""), URL_QUERY, &value) < 0)
            continue;
        for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
            if (!str_eqc(name, known[i].name))
                continue;
            if (known[i].value->p)
                return err_set(err, ERR_INVALID_ARGUMENT,
                               "Invalid format for parameter %s: multiple values for single value parameter '%s'",
                               known[i].name, known[i].name);
            *known[i].value = value;
        }
    }
    if (user.p)
        q.user = user;
    if (expiration.p) {
        if (str_to_i64(expiration, &q.expiration) < 0)
            return err_set(err, ERR_INVALID_ARGUMENT,
                           "Invalid format for parameter signature_expiration: not an integer");
        q.expires = true;
    }
    if (str_has_nul(q.user))
        return err_set(err, ERR_INVALID_ARGUMENT, "Invalid format for parameter username: NUL");
    *ret_query = q;
    return 0;
}

struct signature files_query_signed(const struct files_query *q, enum files_operation operation)
{
    return (struct signature){
        .path = q->path,
        .operation = operation == FILES_READ ? STR("read") : STR("write"),
        .user = q->user,
        .expires = q->expires,
        .expiration = q->expiration,
    };
}

bool files_query_signed_by(const struct files_query *q, enum files_operation operation, struct str token)
{
    const struct signature what = files_query_signed(q, operation);
    return signature_matches(&what, token, q->signature);
}

const char *files_query_refused(const struct files_query *q, enum files_operation operation, struct str token,
                                struct str header, usec_t now)
{
    if (!token.p)
        return NULL;
    if (header.n)
        return str_eq_secret(header, token) ? NULL : "access token present in header but does not match";
    if (!q->signature.p)
        return "missing signature query parameter";
    if (!files_query_signed_by(q, operation, token))
        return "invalid signature";
    if (q->expires && (q->expiration < 0 || (uint64_t)q->expiration < now / USEC_PER_SEC))
        return "signature is already expired";
    return NULL;
}
