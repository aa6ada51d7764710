/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/http.h"

bool http_hosts_add(struct http_hosts *hosts, struct str entry)
{
    struct http_host h = {.plain = true};
    if (str_starts(entry, STR("https://"))) {
        entry = str_sub(entry, 8);
        h.plain = false;
    }
    if (hosts->n == HTTP_HOSTS_MAX || !reference_split_host(entry, h.name, &h.port))
        return false;
    hosts->list[hosts->n++] = h;
    return true;
}

const struct http_host *http_hosts_find(const struct http_hosts *hosts, const char *name, uint16_t port)
{
    for (size_t i = 0; i < hosts->n; i++)
        if (strcmp(hosts->list[i].name, name) == 0 && (hosts->list[i].port == 0 || hosts->list[i].port == port))
            return &hosts->list[i];
    return NULL;
}
