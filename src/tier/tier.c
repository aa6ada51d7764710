/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/tier.h"

#include <sys/socket.h>
#include <unistd.h>

static bool tier_is_among(const char *name, char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

int tier_set_probe(const struct tier_host *host, char *const *allowed, size_t n_allowed, const char *minimum,
                   struct tier_set *ret_set, struct err *err)
{
    struct tier_set set = {.list = {.n = 0}};
    size_t at = 0;
    for (; tiers[set.list.n]; set.list.n++) {
        const size_t i = set.list.n;
        struct err missing = {.msg = ""};
        set.tiers[i] = tiers[i];
        (void)snprintf(set.list.at[i].name, TIER_LABEL_MAX, "%s", tiers[i]->name);
        if (n_allowed && !tier_is_among(tiers[i]->name, allowed, n_allowed))
            (void)err_set(&missing, ERR_FAILED_PRECONDITION, "the service's configuration does not allow it");
        else if (tiers[i]->probe(host, &set.powers[i], &missing) == 0)
            missing.msg[0] = 0;
        (void)snprintf(set.list.at[i].missing, TIER_WHY_MAX, "%s", missing.msg);
        set.list.at[i].memory = set.powers[i].memory;
        set.list.at[i].volumes = tiers[i]->mount != NULL;
        set.list.at[i].named = tiers[i]->is_named;
    }
    for (size_t i = 0; i < n_allowed; i++)
        if (!tier_list_find(&set.list, str_of(allowed[i]), &at))
            return err_set(err, ERR_INVALID_ARGUMENT, "tiers.allow: there is no tier '%s'", allowed[i]);
    if (minimum && !tier_list_find(&set.list, str_of(minimum), &at))
        return err_set(err, ERR_INVALID_ARGUMENT, "tiers.minimum: there is no tier '%s'", minimum);
    for (size_t i = 0; minimum && i < at; i++)
        (void)snprintf(set.list.at[i].missing, TIER_WHY_MAX, "the service's configuration demands %s at least",
                       minimum);
    *ret_set = set;
    return 0;
}

int tier_set_choose(const struct tier_set *set, const char *name, const struct tier **ret_tier, struct err *err)
{
    size_t at;
    if (tier_list_choose(&set->list, str_of(name), &at, err) < 0)
        return -1;
    *ret_tier = set->tiers[at];
    return 0;
}

bool tier_set_needs(const struct tier_set *set, enum netns_kind network)
{
    for (size_t i = 0; i < set->list.n; i++)
        if (!set->list.at[i].missing[0] && set->tiers[i]->network == network)
            return true;
    return false;
}

const struct tier_powers *tier_set_powers(const struct tier_set *set, const struct tier *tier)
{
    size_t i = 0;
    while (set->tiers[i] != tier)
        i++;
    return &set->powers[i];
}

void tier_body_fail(const char *step, int error)
{
    char message[TIER_MESSAGE_MAX] = {TIER_FAILED};
    uint16_t number = (uint16_t)(error < 0 ? -error : error);
    memcpy(message + 1, &number, sizeof(number));
    int n = 3 + snprintf(message + 3, sizeof(message) - 3, "%s: %s", step, strerror(number));
    ssize_t ignored UNUSED = send(TIER_BODY_SOCK, message, MIN((size_t)n, sizeof(message) - 1), MSG_NOSIGNAL);
    _exit(1);
}

void tier_body_must(int r, const char *step)
{
    if (r < 0)
        tier_body_fail(step, r);
}

void tier_body_tell(char what)
{
    if (send(TIER_BODY_SOCK, &what, 1, MSG_NOSIGNAL) != 1)
        _exit(1);
}
