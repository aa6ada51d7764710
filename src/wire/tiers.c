/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/tiers.h"

void tier_list_format(const struct tier_list *list, struct buf *b)
{
    for (size_t i = 0; i < list->n; i++)
        (void)buf_printf(b, "%s%s%s%s=%s\n", list->at[i].name, list->at[i].memory ? "+memory" : "",
                         list->at[i].volumes ? "+volumes" : "", list->at[i].named ? "+named" : "", list->at[i].missing);
}

int tier_list_parse(struct str text, struct tier_list *ret_list)
{
    struct tier_list list = {.n = 0};
    struct str line, name;
    while (text.n && str_split(&text, '\n', &line)) {
        struct str what = STR(""), word;
        if (!str_split(&line, '=', &what) || !str_split(&what, '+', &name) || !line.p || !name.n ||
            name.n >= TIER_LABEL_MAX || line.n >= TIER_WHY_MAX || list.n == TIER_LIST_MAX)
            return -EBADMSG;
        while (what.n && str_split(&what, '+', &word)) {
            list.at[list.n].memory |= str_eqc(word, "memory");
            list.at[list.n].volumes |= str_eqc(word, "volumes");
            list.at[list.n].named |= str_eqc(word, "named");
        }
        (void)snprintf(list.at[list.n].name, TIER_LABEL_MAX, "%.*s", STR_ARG(name));
        (void)snprintf(list.at[list.n++].missing, TIER_WHY_MAX, "%.*s", STR_ARG(line));
    }
    *ret_list = list;
    return 0;
}

bool tier_list_find(const struct tier_list *list, struct str name, size_t *ret_at)
{
    for (size_t i = 0; i < list->n; i++)
        if (str_eqc(name, list->at[i].name)) {
            *ret_at = i;
            return true;
        }
    return false;
}

/* Names of those that can be had. */
static void tier_list_names(const struct tier_list *list, bool memory, struct buf *b)
{
    for (size_t i = 0; i < list->n; i++)
        if (!list->at[i].missing[0] && (!memory || list->at[i].memory))
            (void)buf_printf(b, "%s%s", buf_len(b) ? ", " : "", list->at[i].name);
    if (!buf_len(b))
        (void)buf_append_cstr(b, "none");
}

int tier_list_saves(const struct tier_list *list, const char *name, struct err *err)
{
    AUTO_BUF struct buf can = BUF_INIT(TIER_LIST_MAX * TIER_LABEL_MAX * 2);
    size_t at = 0;
    if (list && tier_list_find(list, str_of(name), &at) && list->at[at].memory)
        return 0;
    if (list)
        tier_list_names(list, true, &can);
    struct str names = list ? buf_str(&can) : STR("none");
    return err_set(err, ERR_UNIMPLEMENTED, "tier %s can't save memory to disk (tiers here that can: %.*s)", name,
                   STR_ARG(names));
}

int tier_list_mounts(const struct tier_list *list, const char *name, struct err *err)
{
    size_t at = 0;
    if (!list || !tier_list_find(list, str_of(name), &at) || list->at[at].volumes)
        return 0; /* without a list coved says it */
    return err_set(err, ERR_UNIMPLEMENTED, "tier %s can't mount volumes or directories of the host", name);
}

int tier_list_choose(const struct tier_list *list, struct str name, size_t *ret_at, struct err *err)
{
    AUTO_BUF struct buf there = BUF_INIT(TIER_LIST_MAX * TIER_LABEL_MAX * 2);
    size_t at = 0;
    bool is_known = tier_list_find(list, name, &at);
    if (is_known && !list->at[at].missing[0]) {
        *ret_at = at;
        return 0;
    }
    tier_list_names(list, false, &there);
    struct str names = buf_str(&there);
    if (is_known)
        return err_set(err, ERR_FAILED_PRECONDITION, "tier %s is not available here: %s (available: %.*s)",
                       list->at[at].name, list->at[at].missing, STR_ARG(names));
    return err_set(err, ERR_INVALID_ARGUMENT, "there is no tier '%.*s' (available: %.*s)", STR_ARG_MAX(name, 32),
                   STR_ARG(names));
}
